"""What a client of a server remembers of `SET`."""

import pytest

from tidefall.settings import settings_of, statements_of

NAME = "datafusion.explain.format"


@pytest.mark.parametrize("value", [
    "'a;b'", "'a--b'", "'/*'", "'it''s; -- so'", "'a\nb'", "E'it\\'s; so'", "'-- not a comment'", "$$it's; --$$", "$q$ $$; $q$", "';'", "'*/'", "'back\\'",
])
def test_quoted_values_are_kept(value):
    for script in (f"SET {NAME} = {value}", f"set {NAME} TO {value};", f"/* it's; */ SET {NAME}={value} -- it's; SET", f"-- '\n  SET {NAME} = {value};;"):
        [(name, statement)] = settings_of(script)
        assert name == NAME and value in statement and statement.endswith("; ")
        assert [kept for kept, _ in settings_of(statement)] == [NAME], "it can be sent in front of a question"


def test_each_statement_of_a_script_counts():
    script = """SET a.b = ';'; -- the first
    /* /* nested; */ ' */ reset "a";SET TIME ZONE '+01:00'"""
    assert [name for name, _ in settings_of(script)] == ["a.b", '"a"', "datafusion.execution.time_zone"]
    assert settings_of(script)[1][1] is None


@pytest.mark.parametrize("query", [
    "SELECT 'SET a = 1'", "SET a = 1; SELECT 1", "SELECT ';SET a = 1'", "-- SET a = 1", "/* SET a = 1", "", ";;", "SELECT 1 -- ;\n; SET a = 1",
    "UPDATE t SET a = ';'", "'SET a = 1",
])
def test_what_does_more_than_set_is_not_kept(query):
    assert settings_of(query) == []


def test_statements_are_told_apart():
    assert statements_of("SELECT date'a;', \"b;\"\"c\", `d;` -- e;\n; f/*;*/g ; h - i / j") == [
        "SELECT date'a;', \"b;\"\"c\", `d;`", "f g", "h - i / j"]
    long = "INSERT INTO t VALUES ('" + "set; " * 200_000 + "')"
    assert statements_of(long) == [long]
