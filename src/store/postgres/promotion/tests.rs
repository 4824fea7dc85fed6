//! What is moved fits the tables that this program makes, on a real server.

use super::select_sql;
use crate::store::postgres::migrate::tests::postgres::Cluster;
use crate::store::postgres::sql::rendered;
use crate::store::promotion::{COMPUTED, Kind, LEFT_OUT, LEFT_OUT_COLUMNS, MOVED};

#[tokio::test]
async fn every_table_and_column_of_the_server_is_filled_or_left_out_on_purpose() {
    let database = Cluster::shared().await.database().await;
    let client = database.admin().await;
    let sql = "SELECT c.relname::text, a.attname::text, coalesce(nullif(t.typbasetype, 0), t.oid)::regtype::text
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
                   JOIN pg_type t ON t.oid = a.atttypid
               WHERE n.nspname = 'public' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, a.attnum";
    let rows = client.query(sql, &[]).await.unwrap();
    assert!(rows.len() > 100, "{}", rows.len());
    for row in rows {
        let (name, column, kind): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let Some(table) = MOVED.iter().find(|table| table.name == name) else {
            let is_left_out = LEFT_OUT.iter().any(|(left_out, _)| *left_out == name);
            assert!(is_left_out, "steadfast promote does not fill table {name}: add it to store/promotion/tables.rs");
            continue;
        };
        let Some(moved) = table.columns.iter().find(|moved| moved.name == column) else {
            let is_left_out = LEFT_OUT_COLUMNS.iter().any(|(of, left_out, _)| *of == name && *left_out == column);
            assert!(
                is_left_out,
                "steadfast promote does not fill {name}.{column}: add it to store/promotion/tables.rs"
            );
            continue;
        };
        let expected = match moved.kind {
            Kind::Text => "text",
            Kind::Bytes => "bytea",
            Kind::Bool => "boolean",
            Kind::Int2 => "smallint",
            Kind::Int4 => "integer",
            Kind::Int8 => "bigint",
            Kind::Time => "timestamp with time zone",
            Kind::Id | Kind::Token { .. } => "uuid",
            Kind::Ids => "uuid[]",
        };
        assert_eq!(kind, expected, "{name}.{column}");
    }
    for table in MOVED {
        client.prepare(&rendered(&select_sql(table, true), "public")).await.unwrap();
    }
    for name in COMPUTED {
        assert!(LEFT_OUT.iter().any(|(left_out, _)| left_out == name), "{name}");
        client.prepare(&format!("SELECT FROM {name}")).await.unwrap();
    }
}

/// Else comparing a large table would read all of it for every page.
#[tokio::test]
async fn pages_are_read_along_an_index() {
    let database = Cluster::shared().await.database().await;
    let client = database.admin().await;
    client
        .batch_execute(
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan",
        )
        .await
        .unwrap();
    for table in MOVED {
        let sql = rendered(&select_sql(table, true), "public");
        client.batch_execute(&format!("PREPARE page AS {sql}")).await.unwrap();
        let nulls = vec!["NULL"; table.key + 1].join(", ");
        let plan = client.query(&format!("EXPLAIN EXECUTE page ({nulls})"), &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        client.batch_execute("DEALLOCATE page").await.unwrap();
        assert!(!plan.join("\n").contains("Sort"), "{}: {plan:#?}", table.name);
    }
}
