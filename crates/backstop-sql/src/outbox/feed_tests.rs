//! The hot and the cold queue: bounds, draws, room and closing.

use futures_util::FutureExt;

use super::*;

fn queues<T>(hot: usize, cold: usize) -> Queues<T> {
    Queues::new(Limits { hot, cold, bytes: 1_000_000 })
}

#[tokio::test]
async fn a_queue_is_full_when_its_bytes_are_and_an_empty_one_takes_any_item() {
    let queues = Queues::new(Limits { hot: 100, cold: 100, bytes: 10 });
    assert_eq!(queues.push(Source::Hot, 'a', 50), Ok(()), "it is the only one");
    assert_eq!(queues.push(Source::Hot, 'b', 1), Err('b'));
    queues.pop().await;
    for item in ['c', 'd'] {
        assert_eq!(queues.push(Source::Hot, item, 5), Ok(()));
    }
    assert_eq!(queues.push(Source::Hot, 'e', 1), Err('e'));
    assert_eq!(queues.push(Source::Cold, 'f', 10), Ok(()), "each for itself");
}

#[tokio::test]
async fn as_many_rows_are_wanted_as_are_likely_to_fit() {
    let queues = Queues::new(Limits { hot: 1, cold: 100, bytes: 10 });
    assert_eq!(queues.cold_wanted(), 100, "nobody knows how large they are");
    for n in 0..3 {
        queues.push(Source::Cold, n, 3).unwrap();
    }
    assert_eq!(queues.cold_wanted(), 0, "more than half of the bytes are there");
    queues.pop().await;
    assert!(queues.room_freed().now_or_never().is_none());
    queues.pop().await;
    assert!(queues.room_freed().now_or_never().is_some());
    assert_eq!(queues.cold_wanted(), 2);
    queues.pop().await;
    assert_eq!(queues.cold_wanted(), 3);
    queues.push(Source::Cold, 4, 100).unwrap();
    queues.pop().await;
    assert_eq!(queues.cold_wanted(), 1, "one of any size");
}

#[tokio::test]
async fn there_is_room_for_a_large_item_when_the_queue_is_empty() {
    let queues = Queues::new(Limits { hot: 1, cold: 100, bytes: 10 });
    for n in 0..2 {
        queues.push(Source::Cold, n, 1).unwrap();
    }
    assert_eq!(queues.push(Source::Cold, 2, 100), Err(2));
    queues.pop().await;
    assert!(queues.room_freed().now_or_never().is_none());
    queues.pop().await;
    assert!(queues.room_freed().now_or_never().is_some());
    assert_eq!(queues.push(Source::Cold, 2, 100), Ok(()));
    queues.pop().await;
    queues.push(Source::Cold, 3, 1).unwrap();
    queues.pop().await;
    assert!(queues.room_freed().now_or_never().is_some(), "more than half of it was free");
    assert!(queues.room_freed().now_or_never().is_none());
}

#[tokio::test]
async fn two_draws_of_three_are_hot_while_both_have_work() {
    let queues = queues(100, 100);
    for n in 0..30 {
        queues.push(Source::Hot, (Source::Hot, n), 1).unwrap();
        queues.push(Source::Cold, (Source::Cold, n), 1).unwrap();
    }
    let mut drawn = Vec::new();
    for _ in 0..30 {
        drawn.push(queues.pop().await.unwrap().0);
    }
    let turn = [Source::Hot, Source::Hot, Source::Cold];
    assert!(drawn.chunks(3).all(|three| three == turn), "{drawn:?}");
    assert_eq!(queues.depths(), (10, 20));
}

#[tokio::test]
async fn an_empty_queue_never_holds_up_the_other() {
    let queues = queues(10, 10);
    for n in 0..9 {
        queues.push(Source::Cold, n, 1).unwrap();
    }
    for n in 0..9 {
        assert_eq!(queues.pop().await, Some(n));
    }
}

#[tokio::test]
async fn half_empty_is_when_there_is_room_again() {
    let queues = queues(1, 4);
    for n in 0..4 {
        queues.push(Source::Cold, n, 1).unwrap();
    }
    queues.pop().await;
    assert!(queues.room_freed().now_or_never().is_none());
    queues.pop().await;
    assert!(queues.room_freed().now_or_never().is_some());
    assert!(queues.room_freed().now_or_never().is_none(), "told once");
}

#[tokio::test]
async fn a_full_or_closed_queue_gives_the_item_back() {
    let queues = queues(1, 2);
    assert_eq!(queues.push(Source::Hot, 'a', 1), Ok(()));
    assert_eq!(queues.push(Source::Hot, 'b', 1), Err('b'));
    assert_eq!((queues.push(Source::Cold, 'c', 1), queues.cold_room()), (Ok(()), 1));
    queues.close();
    assert_eq!((queues.push(Source::Cold, 'd', 1), queues.cold_room()), (Err('d'), 0));
}

#[tokio::test]
async fn what_was_queued_before_closing_is_still_drawn() {
    let queues = queues(10, 10);
    queues.push(Source::Hot, 1, 1).unwrap();
    queues.push(Source::Cold, 2, 1).unwrap();
    queues.close();
    assert!(queues.pop().await.is_some() && queues.pop().await.is_some());
    assert_eq!(queues.pop().await, None);
}

#[tokio::test]
async fn rows_are_fetched_when_half_of_the_queue_is_free_and_then_many() {
    let queues = queues(1, 4);
    assert_eq!(queues.cold_wanted(), 4);
    for item in ["a", "b", "c", "d"] {
        queues.push(Source::Cold, item, 1).unwrap();
    }
    assert_eq!((queues.cold_room(), queues.cold_wanted()), (0, 0));
    queues.pop().await;
    assert_eq!((queues.cold_room(), queues.cold_wanted()), (1, 0), "not for one row");
    assert!(queues.room_freed().now_or_never().is_none());
    queues.pop().await;
    assert!(queues.room_freed().now_or_never().is_some());
    assert_eq!(queues.cold_wanted(), 2);
}
