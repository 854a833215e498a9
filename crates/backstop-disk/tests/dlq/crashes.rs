//! The power is cut at every call: what anybody was told is safe has survived.

use backstop_core::Sink;
use backstop_disk::dlq::DlqSink;

use crate::fake_disk::Fault;
use crate::faults::{assert_kept, disk, emit_some, layouts};
use crate::support::{closed, event};

/// Rules: D-030, D-038.
#[tokio::test]
async fn wherever_the_power_is_cut_what_was_told_is_safe_has_survived() {
    for (layout, settings) in layouts() {
        let mut cuts = 0;
        for call in 0.. {
            let disk = disk();
            let sink = DlqSink::open(closed(), settings.clone().filesystem(disk.clone())).unwrap();
            disk.fail_at(call, Fault::PowerCut);
            let safe = emit_some(&sink).await;
            let Some(name) = disk.faulted() else { break };
            assert_kept(&format!("{layout}, cut at call {call}, {name}"), &disk, &safe, layout == "rolling");
            cuts += 1;
        }
        assert!(cuts >= 7, "{layout}: only {cuts} cuts");
    }
}

#[tokio::test]
async fn after_a_crash_the_next_process_goes_on_beside_what_is_left() {
    for (layout, settings) in layouts() {
        let disk = disk();
        let sink = DlqSink::open(closed(), settings.clone().filesystem(disk.clone())).unwrap();
        let mut safe = emit_some(&sink).await;
        disk.fail_at(1, Fault::PowerCut);
        assert!(sink.emit(event("lost")).await.is_err());
        for seed in 0..8 {
            let after = disk.after_crash(seed);
            let sink = DlqSink::open(closed(), settings.clone().filesystem(after.clone())).unwrap();
            sink.emit(event("new")).await.unwrap();
            safe.push("new".to_owned());
            assert_kept(layout, &after, &safe, layout == "rolling");
            safe.pop();
        }
    }
}
