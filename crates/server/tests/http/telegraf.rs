//! What Telegraf sends, sent again.

use std::process::Command;

use serde_json::json;

use crate::client::TestServer;

/// Output of Telegraf's plugins as their documentation shows it, with two rounds of `cpu`.
const LINES: &str = "\
cpu,cpu=cpu0,host=loaner time_active=202224.15999999992,time_guest=30250.35,time_guest_nice=0,time_idle=1527035.04,time_iowait=1352,time_irq=0,time_nice=169.28,time_softirq=6281.4,time_steal=0,time_system=40097.14,time_user=154324.34 1568760922000000000\n\
cpu,cpu=cpu0,host=loaner usage_active=31.249999981810106,usage_guest=2.083333333080696,usage_guest_nice=0,usage_idle=68.7500000181899,usage_iowait=0,usage_irq=0,usage_nice=0,usage_softirq=0,usage_steal=0,usage_system=4.166666666161392,usage_user=25.000000002273737 1568760922000000000\n\
cpu,cpu=cpu-total,host=loaner usage_active=16.6,usage_idle=83.4,usage_system=4.1,usage_user=12.5 1568760922000000000\n\
cpu,cpu=cpu-total,host=loaner usage_active=17.6,usage_idle=82.4,usage_system=4.1,usage_user=13.5 1568760932000000000\n\
mem,host=loaner active=9299595264i,available=16818249728i,available_percent=80.41654254645131,buffered=2383761408i,cached=13316689920i,commit_limit=14751920128i,committed_as=11781156864i,dirty=122880i,free=1877688320i,high_free=0i,high_total=0i,huge_page_size=2097152i,huge_pages_free=0i,huge_pages_total=0i,inactive=7549939712i,low_free=0i,low_total=0i,mapped=416763904i,page_tables=19787776i,shared=670679040i,slab=2081071104i,sreclaimable=1923395584i,sunreclaim=157675520i,swap_cached=1302528i,swap_free=4286128128i,swap_total=4294963200i,total=20913917952i,used=3335778304i,used_percent=15.95004011996231,vmalloc_chunk=0i,vmalloc_total=35184372087808i,vmalloc_used=0i,wired=0i,write_back=0i,write_back_tmp=0i 1574712869000000000\n\
disk,fstype=hfs,mode=ro,path=/ free=398407520256i,inodes_free=97267461i,inodes_total=121847806i,inodes_used=24580345i,total=499088621568i,used=100418957312i,used_percent=20.131039916242397,inodes_used_percent=20.1729894042528 1453832006274071563\n\
diskio,name=sda1 merged_reads=0i,reads=2353i,writes=10i,write_bytes=2117632i,write_time=49i,io_time=1271i,weighted_io_time=1350i,read_bytes=31350272i,read_time=1303i,iops_in_progress=0i,merged_writes=0i 1578326400000000000\n\
net,host=HOST,interface=eth0 bytes_recv=1u,bytes_sent=18446744073709551615u,drop_in=0i,speed=-1i 1492834180000000000\n\
system,host=tyrion load1=3.72,load5=2.4,load15=2.1,n_users=3i,n_cpus=4i 1483964144000000000\n\
system,host=tyrion uptime=1249632i 1483964144000000000\n\
system,host=tyrion uptime_format=\"14 days, 11:07\" 1483964144000000000\n\
procstat,host=prash-laptop,pattern=influxd,process_name=influxd,user=root rlimit_file_locks_soft=2147483647i,cmdline=\"/usr/bin/influxd -config \\\"/etc/my file.conf\\\"\" 1502354142000000000\n\
win_eventlog,Channel=Application,EventRecordID=0,Source=My\\ App\\,\\ Inc. Message=\"line one\nline two\",Level=4i 1582502028000000000\n\
http_response,method=GET,server=http://www.github.com,status_code=200,result=success http_response_code=200i,response_time=6.223266528,result_type=\"success\",result_code=0i,response_string_match=true 1565839598000000000\n";

#[test]
fn lines_of_its_plugins_are_written_and_read_back() {
    let server = TestServer::start();
    let ready = server.send("POST", "/query?q=CREATE+DATABASE+%22telegraf%22", "", b"");
    assert_eq!((ready.status, ready.json()), (200, json!({ "results": [{ "statement_id": 0 }] })));
    let headers = "User-Agent: Telegraf/1.24.1\r\nContent-Type: text/plain; charset=utf-8\r\n";
    let reply =
        server.send("POST", "/write?db=telegraf&consistency=any", headers, LINES.as_bytes());
    assert_eq!(reply.status, 204, "{}", reply.text());
    assert_eq!(
        server.sql("SELECT time, cpu, usage_user, time_iowait FROM cpu ORDER BY cpu, time"),
        json!([
            ["2019-09-17T22:55:22Z", "cpu-total", 12.5, null],
            ["2019-09-17T22:55:32Z", "cpu-total", 13.5, null],
            // Two lines of one sensor and time are one row.
            ["2019-09-17T22:55:22Z", "cpu0", 25.000000002273737, 1352.0],
        ])
    );
    assert_eq!(
        server.sql("SELECT vmalloc_total, used_percent FROM mem"),
        json!([[35184372087808_u64, 15.95004011996231]])
    );
    assert_eq!(server.sql("SELECT time FROM disk"), json!([["2016-01-26T18:13:26.274071563Z"]]));
    assert_eq!(
        server.sql("SELECT bytes_sent, speed FROM net"),
        json!([[18446744073709551615_u64, -1]])
    );
    assert_eq!(
        server.sql("SELECT load1, uptime, uptime_format FROM system"),
        json!([[3.72, 1249632, "14 days, 11:07"]])
    );
    assert_eq!(
        server.sql("SELECT cmdline FROM procstat"),
        json!([["/usr/bin/influxd -config \"/etc/my file.conf\""]])
    );
    assert_eq!(
        server.sql(r#"SELECT "Source", "Message" FROM win_eventlog"#),
        json!([["My App, Inc.", "line one\nline two"]])
    );
    assert_eq!(
        server.sql(
            "SELECT server, response_string_match FROM http_response WHERE result = 'success'"
        ),
        json!([["http://www.github.com", true]])
    );
    assert_eq!(server.sql("SHOW TABLES").as_array().map(Vec::len), Some(9));
}

#[test]
fn influxdb_2_output_works_too() {
    let server = TestServer::start();
    let target = "/api/v2/write?bucket=telegraf&org=home&precision=ns";
    let reply = server.send("POST", target, "Authorization: Token x\r\n", LINES.as_bytes());
    assert_eq!(reply.status, 204, "{}", reply.text());
    assert_eq!(server.sql("SELECT count(*) FROM cpu"), json!([[3]]));
}

#[test]
fn curl_writes_and_reads_back() {
    let server = TestServer::start();
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl").args(["-sS"]).args(arguments).output();
        output.ok().map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let base = format!("http://{}", server.address);
    let write = format!("{base}/write?precision=s");
    let Some(written) =
        curl(&["-w", "%{http_code}", &write, "--data-binary", "cpu,host=a usage=12.5 1700000000"])
    else {
        println!("skipped: there is no curl here");
        return;
    };
    assert_eq!(written, "204");
    let sql = format!("{base}/api/v1/sql");
    let json = curl(&[&sql, "-d", "SELECT host, usage FROM cpu"]).unwrap();
    assert!(json.contains("[\"a\",12.5]"), "{json}");
    let csv =
        curl(&["-G", &sql, "--data-urlencode", "q=SELECT * FROM cpu", "-H", "Accept: text/csv"]);
    assert_eq!(csv.as_deref(), Some("time,host,usage\n2023-11-14T22:13:20Z,a,12.5\n"));
}
