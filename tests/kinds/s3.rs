//! Results in a bucket: moto on the loopback, which checks signatures.

#![cfg(feature = "kinds-s3")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use steadfast::kinds::ResizeImage;
use steadfast::kinds::image::{ImageResizer, ImageSettings, ImageStoreSettings, S3Settings};
use steadfast::{JobRecord, Status};

use crate::images::{photograph, start};
use crate::receiver::{Receiver, Reply};
use crate::world::{Running, World, eventually, guarded, python_tool, trusted};

/// A server that speaks S3. It knows one user, who may do everything, and from then on refuses what is not signed by it.
struct Moto {
    server: Child,
    address: SocketAddr,
    key: (String, String),
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Makes a user, a policy, a key and a bucket: as many calls as are not checked.
const SET_UP: &str = r#"
iam = client("iam", "any", "any")
iam.create_user(UserName="steadfast")
policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
iam.put_user_policy(UserName="steadfast", PolicyName="all", PolicyDocument=json.dumps(policy))
key = iam.create_access_key(UserName="steadfast")["AccessKey"]
client("s3", "any", "any").create_bucket(Bucket="photos")
print(json.dumps([key["AccessKeyId"], key["SecretAccessKey"]]))
"#;
const CALLS_OF_SET_UP: &str = "4";

/// What is in the bucket.
const LIST: &str = r#"
s3 = client("s3", sys.argv[2], sys.argv[3])
found = []
for entry in s3.list_objects_v2(Bucket="photos").get("Contents", []):
    it = s3.get_object(Bucket="photos", Key=entry["Key"])
    found.append([entry["Key"], it["ContentType"], it.get("CacheControl"), it["Body"].read().hex()])
print(json.dumps(found))
"#;

impl Moto {
    async fn start() -> Self {
        let program = tokio::task::spawn_blocking(|| python_tool("moto_server")).await.unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .env("INITIAL_NO_AUTH_ACTION_COUNT", CALLS_OF_SET_UP)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut moto = Self { server, address, key: Default::default() };
        eventually("moto to listen", async || TcpStream::connect(address).ok()).await;
        let key = moto.python(SET_UP).await;
        moto.key = serde_json::from_value(key).unwrap();
        moto
    }

    /// What a script prints.
    async fn python(&self, script: &str) -> Value {
        let client = "import boto3, json, sys\n\
            def client(service, key, secret):\n    \
            return boto3.client(service, endpoint_url=sys.argv[1], region_name='us-east-1', \
            aws_access_key_id=key, aws_secret_access_key=secret)\n";
        let mut command = Command::new(python_tool("python"));
        command.args(["-c", &format!("{client}{script}"), &self.url(), &self.key.0, &self.key.1]);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn settings(&self, bucket: &str) -> S3Settings {
        S3Settings::new(bucket, "small/2026").endpoint(self.url()).key(&self.key.0, &self.key.1)
    }
}

async fn handler(settings: S3Settings) -> (World, ImageResizer, Running) {
    let settings = ImageSettings::new(ImageStoreSettings::S3(settings)).public_url("https://cdn.example");
    let resizer = ImageResizer::new(settings, guarded(), trusted()).unwrap();
    let world = World::sqlite().await;
    let worker = start(&world, resizer.clone()).await;
    (world, resizer, worker)
}

async fn ended(world: &World, receiver: &Receiver) -> JobRecord {
    let id = world.enqueue(ResizeImage::new(receiver.url("/a.jpg"), 48, 48)).await;
    world.ends(id).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s47_a_result_is_put_into_the_bucket_signed_and_under_the_jobs_id() {
    let moto = Moto::start().await;
    let receiver = Receiver::always(Reply::status(200).body(photograph())).await;
    let (world, resizer, _worker) = handler(moto.settings("photos")).await;

    resizer.probe().await.unwrap();
    assert_eq!(moto.python(LIST).await, json!([]), "the probe's object is gone");
    let job = ended(&world, &receiver).await;

    assert_eq!(job.status, Status::Succeeded, "{:?}", job.last_error);
    let result: Value = job.result.unwrap().decode().unwrap();
    assert_eq!(result["key"], json!(format!("{}.jpg", job.id)));
    assert_eq!(result["url"], json!(format!("https://cdn.example/{}.jpg", job.id)));
    let found = moto.python(LIST).await;
    let [found] = &found.as_array().unwrap()[..] else { panic!("one object: {found}") };
    assert_eq!(found[0], json!(format!("small/2026/{}.jpg", job.id)));
    assert_eq!(found[1], "image/jpeg");
    assert_eq!(found[2], "public, max-age=31536000, immutable");
    let hex = found[3].as_str().unwrap();
    assert_eq!(Some(hex.len() as u64 / 2), result["bytes"].as_u64());
    assert!(hex.starts_with("ffd8ff"), "a jpeg: {}", &hex[..16]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_refuses_is_tried_again_and_the_error_says_why() {
    let moto = Moto::start().await;
    let receiver = Receiver::always(Reply::status(200).body(photograph())).await;
    let wrong_secret = moto.settings("photos").key(&moto.key.0, "not the secret");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = moto.settings("photos").endpoint(format!("http://{nobody}"));
    for (settings, said) in [
        (wrong_secret, "refused our key"),
        (moto.settings("no-such-bucket"), "bucket was not found"),
        (away, "could not be written"),
    ] {
        let (world, resizer, _worker) = handler(settings).await;
        let probed = resizer.probe().await.unwrap_err();
        assert!(probed.contains(said), "{probed}");
        let job = ended(&world, &receiver).await;
        assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 5), "{:?}", job.last_error);
        let error = job.last_error.unwrap();
        assert!(error.contains(said) && !error.contains("127.0.0.1") && !error.contains("secret"), "{error}");
    }
    assert_eq!(moto.python(LIST).await, json!([]));
}
