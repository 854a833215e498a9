//! A web service that takes orders: the answer 201 means that the order and its event are both in the database.
//!
//! `cargo run -p backstop-examples --example axum_service` serves on port 3000 until Ctrl-C:
//!
//! ```text
//! curl -d '{"item":"tea","pieces":2}' -H 'content-type: application/json' http://127.0.0.1:3000/orders
//! ```
//!
//! With `--try` it takes a free port, sends itself an order, and ends.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use backstop::{Event, Failure, Outbox};
use serde::{Deserialize, Serialize};
use sqlx::{Sqlite, SqlitePool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

#[derive(Debug, Serialize, Deserialize)]
struct NewOrder {
    item: String,
    pieces: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Placed {
    id: i64,
    event_id: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let itself = std::env::args().any(|argument| argument == "--try");
    let directory = tempfile::tempdir()?;
    let pool = backstop::sqlite::open(directory.path().join("shop.db")).await?;
    let (shipped, mut parcels) = mpsc::channel(16);
    let outbox = open(pool, shipped).await?;

    let listener = TcpListener::bind(if itself { "127.0.0.1:0" } else { "127.0.0.1:3000" }).await?;
    let address = listener.local_addr()?;
    println!("taking orders on http://{address}/orders");
    let service = axum::serve(listener, routes(outbox.clone()));
    if itself {
        tokio::spawn(async move { service.await });
        println!("answered {}", send_an_order(&address.to_string()).await?);
        println!("shipped {}", parcels.recv().await.unwrap_or_default());
    } else {
        tokio::spawn(async move {
            while let Some(parcel) = parcels.recv().await {
                println!("shipped {parcel}");
            }
        });
        service.with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await }).await?;
    }

    // First no more requests, then the outbox: what it holds is delivered or stays in the table.
    outbox.close().await?;
    println!("{} stored", outbox.metrics().append.total());
    Ok(())
}

async fn open(pool: SqlitePool, shipped: mpsc::Sender<String>) -> anyhow::Result<Outbox<Sqlite>> {
    sqlx::query("create table shop_order (id integer primary key, item text, pieces int)")
        .execute(&pool)
        .await?;
    let outbox = Outbox::single_node(pool)
        .on("Order", "OrderPlaced", move |event: Event| {
            let shipped = shipped.clone();
            async move {
                let order: NewOrder = event.payload()?;
                shipped.send(format!("{} × {}", order.pieces, order.item)).await?;
                Ok::<_, Failure>(())
            }
        })
        .start()
        .await?;
    Ok(outbox)
}

fn routes(outbox: Outbox<Sqlite>) -> Router {
    Router::new().route("/orders", post(place_order)).with_state(outbox)
}

/// Stores the order and its event in one transaction. If anything fails, neither is there and the caller
/// may send the order again.
async fn place_order(
    State(outbox): State<Outbox<Sqlite>>,
    Json(order): Json<NewOrder>,
) -> Result<(StatusCode, Json<Placed>), (StatusCode, String)> {
    let stored = outbox.transaction(async |tx| -> Result<Placed, backstop::Error> {
        let insert = sqlx::query("insert into shop_order (item, pieces) values (?, ?)");
        let inserted = insert.bind(&order.item).bind(order.pieces).execute(&mut **tx).await?;
        let id = inserted.last_insert_rowid();
        let event = Event::of("OrderPlaced").aggregate("Order", id.to_string()).json(&order)?;
        Ok(Placed { id, event_id: tx.append(event).await? })
    });
    match stored.await {
        Ok(placed) => Ok((StatusCode::CREATED, Json(placed))),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// What `curl` would do. Gives back the status line's number and the body.
async fn send_an_order(address: &str) -> anyhow::Result<String> {
    let body = r#"{"item":"tea","pieces":2}"#;
    let request = format!(
        "POST /orders HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok(format!("{status} {body}"))
}
