//! The parsers over texts of machines: `testdata` was recorded from a virtual machine with two cores and Linux 6.18;
//! the texts below have the form of other machines.

use super::*;
use proptest::prelude::*;

const STAT: &str = include_str!("../testdata/stat.txt");
const MEMINFO: &str = include_str!("../testdata/meminfo.txt");
const VMSTAT: &str = include_str!("../testdata/vmstat.txt");
const DISKSTATS: &str = include_str!("../testdata/diskstats.txt");
const NET_DEV: &str = include_str!("../testdata/net_dev.txt");
const SNMP: &str = include_str!("../testdata/snmp.txt");
const NETSTAT: &str = include_str!("../testdata/netstat.txt");

fn value(found: &[(&str, u64)], name: &str) -> Option<u64> {
    found
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| *value)
}

#[test]
fn a_recorded_stat_has_both_cores_and_the_rest() {
    let found = stat(STAT).unwrap();
    let cores: Vec<u32> = found.cores.iter().map(|one| one.core).collect();
    assert_eq!(cores, [0, 1]);
    let all = STAT
        .lines()
        .next()
        .unwrap()
        .split_ascii_whitespace()
        .nth(1)
        .unwrap();
    let user: u64 = found.cores.iter().map(|one| one.ns[0] / TICK_NS).sum();
    // The kernel rounds the sum and each core for itself.
    assert!(user.abs_diff(all.parse().unwrap()) <= 2);
    let rest = [
        found.context_switches,
        found.interrupts,
        found.forks,
        found.running,
        found.blocked,
    ];
    assert!(rest.iter().all(Option::is_some), "{rest:?}");
}

#[test]
fn a_core_that_is_offline_or_a_kernel_that_is_old_leaves_gaps() {
    let found =
        stat("cpu  9 9 9 9\ncpu0 1 2 3 4\ncpu3 5 6 7 8 9 10 11 12 13 14\nfuture 3\n").unwrap();
    let cores: Vec<_> = found
        .cores
        .iter()
        .map(|one| (one.core, one.ns[7] / TICK_NS))
        .collect();
    assert_eq!(cores, [(0, 0), (3, 12)]);
    assert_eq!(found.context_switches, None);
    assert!(stat("").is_err());
}

#[test]
fn a_text_that_is_cut_gives_less_and_never_a_wrong_number() {
    let whole = stat(STAT).unwrap();
    for end in (0..STAT.len()).filter(|end| STAT.is_char_boundary(*end)) {
        if let Ok(part) = stat(&STAT[..end]) {
            assert!(whole.cores.starts_with(&part.cores), "{end}");
            assert!(
                part.context_switches.is_none() || part.context_switches == whole.context_switches
            );
        }
    }
    let whole = disks(DISKSTATS).unwrap();
    for end in 0..DISKSTATS.len() {
        assert!(
            whole.starts_with(&disks(&DISKSTATS[..end]).unwrap()),
            "{end}"
        );
    }
    let line = "7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 12 34 0 0 20 0 3 0 99 4096 5 1 1 1\n";
    for end in 0..line.len() {
        assert!(process(&line[..end]).is_err(), "{end}");
    }
}

#[test]
fn recorded_memory_is_in_bytes() {
    let found = meminfo(MEMINFO).unwrap();
    let total = value(&found, "MemTotal").unwrap();
    assert!(total > 1 << 30 && total.is_multiple_of(1024));
    // A number without a unit is no size.
    assert_eq!(value(&found, "HugePages_Total"), None);
    assert!(meminfo("MemFree: 12 kB\n").is_err());
    assert!(value(&vmstat(VMSTAT).unwrap(), "pgfault").unwrap() > 0);
}

#[test]
fn pressure_has_two_lines_or_one() {
    let text = "some avg10=92.21 avg60=54.65 avg300=38.49 total=5228267275\n\
                full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
    let found = pressure(text).unwrap();
    assert_eq!(found[0].0, "some");
    assert!((found[0].1.ratio_10s - 0.9221).abs() < 1e-9);
    assert_eq!(found[0].1.total_ns, 5_228_267_275_000);
    assert_eq!((found[1].0, found[1].1.total_ns), ("full", 7000));
    assert_eq!(
        pressure(&text[..text.find("full").unwrap()]).unwrap().len(),
        1
    );
    assert!(pressure("").is_err());
}

#[test]
fn disks_of_old_and_new_kernels_are_read() {
    let found = disks(DISKSTATS).unwrap();
    let vda = found.iter().find(|disk| disk.name == "vda").unwrap();
    assert!(vda.read.count > 0 && vda.discard.is_some() && vda.flush.is_some());
    let old = disks("   8       1 sda1 1 2 3 4 5 6 7 8 9 10 11\n").unwrap();
    assert_eq!(
        (old[0].name, old[0].write.sectors, old[0].weighted_ms),
        ("sda1", 7, 11)
    );
    assert_eq!((old[0].discard, old[0].flush), (None, None));
    assert!(disks("8 1 sda1 1 2 3\n").is_err());
    assert_eq!(disks(""), Ok(Vec::new()));
}

#[test]
fn a_device_is_listed_where_it_is_mounted_first() {
    let text = "proc /proc proc rw 0 0\n/dev/vda / ext4 rw 0 0\n/dev/sdb1 /mnt/a\\040b ext4 rw 0 0\n\
                /dev/vda /run/netns ext4 rw 0 0\n";
    assert_eq!(mounts(text), ["/", "/mnt/a b"]);
}

#[test]
fn interfaces_are_read_with_errors_and_drops() {
    let found = interfaces(NET_DEV).unwrap();
    assert_eq!(found[0].name, "lo");
    assert_eq!(found[0].bytes[0], found[0].bytes[1]);
    let text = " face |bytes\neth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
    let found = interfaces(text).unwrap();
    assert_eq!((found[0].errors, found[0].drops), ([3, 11], [4, 12]));
    assert!(interfaces("nothing\n").is_err());
}

#[test]
fn names_of_the_stack_meet_their_values() {
    for (text, protocol, name) in [
        (SNMP, "Tcp", "RetransSegs"),
        (NETSTAT, "TcpExt", "ListenDrops"),
    ] {
        let mut found = None;
        pairs(text, |p, n, value| {
            if (p, n) == (protocol, name) {
                found = Some(value);
            }
        });
        assert!(found.is_some_and(|value| value > 0), "{name}: {found:?}");
    }
}

#[test]
fn single_values_are_read_or_named() {
    assert_eq!(number("scaling_cur_freq", "600000\n"), Ok(600_000));
    assert_eq!(signed("temp", "-5250\n"), Ok(-5250));
    // A sensor that is not ready gives an empty file.
    let error = signed("temp", "").unwrap_err();
    assert_eq!(
        error.to_string(),
        "temp: found \"\", expected a whole number"
    );
    assert_eq!(files("1629\t0\t2466177\n"), Ok((1629, 2_466_177)));
    let found = load("3.64 2.44 1.29 6/173 1781\n").unwrap();
    assert_eq!((found.averages, found.threads), ([3.64, 2.44, 1.29], 173));
    assert!(load("3.64 2.44\n").is_err());
}

#[test]
fn a_board_says_why_it_is_slow() {
    // Under-voltage now, and throttled since the start.
    let found = throttles("50005\n").unwrap();
    assert_eq!(
        found,
        [[true, true], [false, false], [true, true], [false, false]]
    );
    assert_eq!(throttles("0x0\n").unwrap(), [[false; 2]; 4]);
    assert!(throttles("no\n").is_err());
}

#[test]
fn clocks_are_in_cpuinfo_of_x86_alone() {
    let text = "processor\t: 0\nmodel name\t: a: b\ncpu MHz\t\t: 2596.120\n\nprocessor\t: 1\ncpu MHz\t\t: 800.000\n";
    let found: Vec<_> = clocks(text)
        .iter()
        .map(|one| (one.core, one.hertz))
        .collect();
    assert_eq!(found, [(0, 2.596_12e9), (1, 8e8)]);
    let arm = "processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd\n\nRevision\t: a020d3\n";
    assert!(clocks(arm).is_empty());
}

#[test]
fn a_control_group_may_lack_a_controller() {
    let text = "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 0\nnr_throttled 0\nthrottled_usec 5\n";
    let found = cgroup_cpu(text).unwrap();
    assert_eq!(
        (found.user_ns, found.system_ns, found.throttled_ns),
        (20_000, 10_000, Some(5000))
    );
    assert_eq!(
        cgroup_cpu("user_usec 1\nsystem_usec 2\n")
            .unwrap()
            .throttled_ns,
        None
    );
    // Version 1 has other names.
    assert!(cgroup_cpu("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n").is_err());
    let io = cgroup_io("254:0 rbytes=10 wbytes=20 rios=1\n8:0 rbytes=1 wbytes=2 rios=1\n");
    assert_eq!((io.read_bytes, io.write_bytes), (11, 22));
    assert_eq!(
        flat("oom 0\noom_kill 3\nmax max\n"),
        [("oom", 0), ("oom_kill", 3)]
    );
}

#[test]
fn the_name_of_a_process_may_hold_anything() {
    let text =
        "42 (a) R (b\n) S 1 42 42 0 -1 4194560 1 0 0 0 12 34 0 0 20 0 3 0 9900 4096 5 1 1 1\n";
    let found = process(text).unwrap();
    assert_eq!((found.pid, found.name, found.threads), (42, "a) R (b\n", 3));
    assert_eq!(found.cpu_ns, 46 * TICK_NS);
    assert_eq!(
        (found.start_ticks, found.virtual_bytes, found.resident_pages),
        (9900, 4096, 5)
    );
    assert!(found.is_alive());
    assert!(!process(&text.replace(") S", ") Z")).unwrap().is_alive());
}

/// Every parser, over any text: nothing panics.
fn parse_all(text: &str) {
    let _ = (
        stat(text),
        meminfo(text),
        vmstat(text),
        pressure(text),
        disks(text),
        interfaces(text),
    );
    let _ = (
        load(text),
        files(text),
        throttles(text),
        process(text),
        number("x", text),
        signed("x", text),
    );
    let _ = (
        clocks(text),
        mounts(text),
        cgroup_cpu(text),
        cgroup_io(text),
        flat(text),
    );
    pairs(text, |_, _, _| {});
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>(), file in 0..7_usize, at in any::<prop::sample::Index>()) {
        parse_all(&text);
        // And a real one with this inside.
        let real = [STAT, MEMINFO, VMSTAT, DISKSTATS, NET_DEV, SNMP, NETSTAT][file];
        let at = at.index(real.len());
        parse_all(&format!("{}{text}{}", &real[..at], &real[at..]));
    }
}
