"""Connections that a server, or whatever lies in between, has closed."""

import socket
import threading
import time

import numpy
import pandas
import pytest

import tidefall
import tidefall.remote
from served import Served


class Between:
    """Passes bytes on between clients and a server, and closes connections that stand idle, as servers do."""

    def __init__(self, port, idle_seconds=0.3):
        self.port, self.idle_seconds = port, idle_seconds
        # How many of the next requests are swallowed, and those that were.
        self.swallows, self.swallowed, self.opened = 0, [], 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.opened += 1
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        client.settimeout(self.idle_seconds)
        with client, socket.create_connection(("127.0.0.1", self.port)) as server:
            try:
                while request := client.recv(1 << 20):
                    if self.swallows > 0:
                        self.swallows -= 1
                        self.swallowed.append(request)
                        continue
                    server.sendall(request)
                    server.settimeout(0.2)
                    try:
                        while answer := server.recv(1 << 20):
                            client.sendall(answer)
                    except TimeoutError:
                        pass
            except OSError:
                pass


@pytest.fixture
def between(tmp_path):
    served = Served(str(tmp_path / "db"))
    port = int(served.client._core.server.address.rpartition(":")[2])
    between = Between(port)
    yield between
    between.listener.close()
    served.stop()


def readings(start):
    times = pandas.date_range(start, periods=10, freq="s")
    return pandas.DataFrame({"time": times, "sensor": "a", "value": numpy.arange(10.0)})


def count(db):
    return db.sql("SELECT count(*) AS n FROM plant").to_pandas().n[0]


def test_a_connection_that_was_closed_while_idle_is_opened_again_before_a_write(between):
    with tidefall.connect(between.url) as db:
        for day in range(1, 4):
            db.write("plant", readings(f"2024-01-0{day}"), tags=["sensor"])
            time.sleep(3 * between.idle_seconds)
        assert count(db) == 30
        time.sleep(3 * between.idle_seconds)
        db.sql("DELETE FROM plant WHERE time < '2024-01-02'").to_pandas()
        assert count(db) == 20
        opened = between.opened
        assert count(db) == count(db) == 20
        assert between.opened == opened, "a connection that is used is kept"


def test_a_connection_that_is_old_is_not_used(between, monkeypatch):
    between.idle_seconds = 60
    with tidefall.connect(between.url) as db:
        db.write("plant", readings("2024-01-01"), tags=["sensor"])
        opened = between.opened
        assert count(db) == 10 and between.opened == opened
        monkeypatch.setattr(tidefall.remote, "IDLE_SECONDS_MAX", 0.05)
        time.sleep(0.2)
        assert count(db) == 10 and between.opened == opened + 1


@pytest.mark.parametrize("change", [
    lambda db: db.sql("INSERT INTO plant SELECT time + INTERVAL '1 hour', sensor, value FROM plant").to_pandas(),
    lambda db: db.sql("SELECT 1; DROP TABLE plant").to_pandas(),
    lambda db: db.write("plant", readings("2024-02-01"), tags=["sensor"]),
])
def test_what_changes_something_is_sent_once(between, change):
    with tidefall.connect(between.url) as db:
        db.write("plant", readings("2024-01-01"), tags=["sensor"])
        between.swallows = 2
        with pytest.raises(tidefall.IoError, match="nobody knows whether it did"):
            change(db)
        assert len(between.swallowed) == 1
        between.swallows = 0
        assert count(db) == 10


def test_a_question_is_sent_again(between):
    with tidefall.connect(between.url) as db:
        db.write("plant", readings("2024-01-01"), tags=["sensor"])
        between.swallows = 1
        assert count(db) == 10
        assert len(between.swallowed) == 1


def check_keeps_alive(sock):
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    for option, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
        if hasattr(socket, option):
            assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, option)) == value


def test_the_system_asks_whether_a_silent_server_is_there(between):
    with tidefall.connect(between.url) as db:
        server = db._core.server
        first = server.local.connection.sock
        check_keeps_alive(first)
        # Of one that was closed the next one takes the place.
        first.shutdown(socket.SHUT_RDWR)
        assert db.tables() == []
        assert server.local.connection.sock is not first
        check_keeps_alive(server.local.connection.sock)


def test_a_closed_client_leaves_no_connection_behind(between):
    db = tidefall.connect(between.url)
    kept = db._core.server.local.connection.sock
    db.close()
    assert kept.fileno() == -1
    db.close()
