//! The outbox beside SeaORM: an order and its event in one `DatabaseTransaction`.
//!
//! `cargo run -p backstop-examples --example sea_orm`

use backstop::{Event, Failure, Outbox};
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, Statement, TransactionTrait};
use sqlx::Sqlite;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db");

    // The outbox delivers on a pool of its own. SeaORM opens the same file.
    let (shipped, mut parcels) = mpsc::channel::<String>(16);
    let outbox = Outbox::single_node(backstop::sqlite::open(&file).await?)
        .on("Order", "OrderPlaced", move |event: Event| {
            let shipped = shipped.clone();
            async move { Ok::<_, Failure>(shipped.send(event.payload()?).await?) }
        })
        .start()
        .await?;
    let db = Database::connect(format!("sqlite://{}", file.display())).await?;
    db.execute_unprepared("create table shop_order (number int, item text)").await?;

    place(&db, &outbox, 1, "tea").await?;
    println!("shipped {}", parcels.recv().await.unwrap_or_default());

    // A transaction that is not committed takes the order and the event with it.
    let mut tx = db.begin().await?;
    insert(&tx, 2, "honey").await?;
    let appended = outbox.writer().append(&mut tx, order_placed(2, "honey")?).await?;
    tx.rollback().await?;
    appended.rolled_back();

    outbox.close().await?;
    let orders = Statement::from_string(db.get_database_backend(), "select * from shop_order");
    println!("{} order stored", db.query_all_raw(orders).await?.len());
    println!("{} event appended", outbox.metrics().append.total());
    Ok(())
}

/// Stores the order and its event: both happen, or neither.
async fn place(
    db: &DatabaseConnection,
    outbox: &Outbox<Sqlite>,
    number: i32,
    item: &str,
) -> anyhow::Result<()> {
    let mut tx = db.begin().await?;
    insert(&tx, number, item).await?;
    let appended = outbox.writer().append(&mut tx, order_placed(number, item)?).await?;
    tx.commit().await?;
    appended.committed(); // delivery begins here
    Ok(())
}

async fn insert(tx: &impl ConnectionTrait, number: i32, item: &str) -> anyhow::Result<()> {
    let sql = "insert into shop_order values (?, ?)";
    let values = [number.into(), item.into()];
    tx.execute_raw(Statement::from_sql_and_values(tx.get_database_backend(), sql, values)).await?;
    Ok(())
}

fn order_placed(number: i32, item: &str) -> anyhow::Result<Event> {
    Ok(Event::of("OrderPlaced").aggregate("Order", number.to_string()).json(&item)?)
}
