// Store against SeaweedFS, a server that speaks S3 and checks signatures, directly and through a
// proxy that misbehaves. Skipped where SeaweedFS is missing (deploy/setup.sh --test brings it).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/remote/buckets.h"
#include "base/remote/store.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/base/remote/hub_server.h"

namespace longhaul::remote {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr uint64_t kMega = 1 << 20;

// One server for all tests: it takes some seconds to start.
struct Server {
  const testing::TempDir folder;
  std::unique_ptr<testing::Subprocess> process;
  int port = 0;
  testing::HubServer proxy;

  Server() {
    auto started = testing::Subprocess::Start(
        {HUB_SERVER_PYTHON, S3_SERVER_SCRIPT, S3_PROGRAM, "bucket", folder.path()});
    EXPECT_TRUE(started.ok()) << started.status();
    process = *std::move(started);
    EXPECT_TRUE(process->WaitForOutput("ready", Deadline::After(absl::Seconds(150))))
        << process->standard_error();
    std::string word;
    std::istringstream line(process->standard_output());
    line >> word >> port;
    proxy.Do("forward", {{"port", port}});
  }
};

class S3Test : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override {
    if (::access(S3_PROGRAM, X_OK) != 0) {
      GTEST_SKIP() << "no " << S3_PROGRAM << "; deploy/setup.sh --test brings it";
    }
    if (!server_) server_ = std::make_unique<Server>();
    settings_.endpoints.s3 = "http://127.0.0.1:" + std::to_string(server_->port);
    settings_.credentials.s3 = {.access_key = "AKLONGHAULTEST",
                                .secret_key = Secret("secret/with+letters=that%need&escapes")};
    settings_.endpoints.google = settings_.endpoints.s3;
    settings_.credentials.google = settings_.credentials.s3;
    options_.hosts = {.local_hosts = {"127.0.0.1:*"}};
    options_.patience.sleep = [this](absl::Duration) { ++pauses_; };
    options_.part_bytes = 5 * kMega;
    options_.largest_single_write = 8 * kMega;
    options_.parallel = 3;
  }
  void ThroughTheProxy() { settings_.endpoints.s3 = server_->proxy.s3(); }
  Store MakeStore() const { return Store(settings_, options_); }
  static Address At(const std::string& text) { return ParseAddress(text).value(); }
  static std::span<const std::byte> Bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  // Uploads in parts that are neither completed nor aborted.
  std::string Unfinished() {
    const Tools tools{.settings = settings_,
                      .options = options_,
                      .client = http::Client({.hosts = options_.hosts})};
    return Buckets(Kind::kS3, tools)
        .Send("GET", At("s3://bucket/"), {{"uploads", ""}}, {}, {}, "cannot list")
        .value()
        .body;
  }

  static std::unique_ptr<Server> server_;
  Settings settings_;
  Options options_;
  std::atomic<int> pauses_ = 0;
};
std::unique_ptr<Server> S3Test::server_;

TEST_F(S3Test, WritesLooksAndReads) {
  const Store store = MakeStore();
  const std::string text = testing::Fill('a', 300'000);
  for (const char* name : {"s3://bucket/plain/a", "s3://bucket/odd/a b+c&d=e%41?f#g~ü(1)'*!@$,;:",
                           "gs://bucket/plain/google"}) {
    const Address object = At(name);
    const Version written = store.Write(object, Bytes(text)).value();
    EXPECT_EQ(written.bytes, text.size());
    EXPECT_EQ(store.Look(object).value(), written) << name;
    EXPECT_EQ(store.ReadAll(object, text.size()).value(), text) << name;
    std::string part(1000, '\0');
    ASSERT_TRUE(
        store.ReadInto(object, written, 12'345, std::as_writable_bytes(std::span(part))).ok());
    EXPECT_EQ(part, text.substr(12'345, 1000));
  }
  const Address empty = At("s3://bucket/plain/empty");
  ASSERT_TRUE(store.Write(empty, {}).ok());
  EXPECT_EQ(store.ReadAll(empty, 0).value(), "");
  EXPECT_TRUE(absl::IsNotFound(store.Look(At("s3://bucket/none")).status()));
  EXPECT_TRUE(absl::IsNotFound(store.List(At("s3://no-such-bucket/")).status()));
}

TEST_F(S3Test, ListsAreReadPageByPage) {
  const Store store = MakeStore();
  constexpr int kCount = 1'010;  // a page has 1000
  for (int i = 0; i < kCount; ++i) {
    ASSERT_TRUE(store.Write(At("s3://bucket/many/" + std::to_string(10'000 + i)), Bytes("x")).ok());
  }
  ASSERT_TRUE(store.Write(At("s3://bucket/many2"), Bytes("x")).ok());
  ASSERT_TRUE(store.Write(At("s3://bucket/many/deep/ü & <x>"), Bytes("yy")).ok());
  ThroughTheProxy();
  server_->proxy.Do("log");
  const Listing listing = MakeStore().List(At("s3://bucket/many")).value();
  EXPECT_EQ(server_->proxy.Do("log").size(), 2);  // pages
  ASSERT_EQ(listing.entries.size(), kCount + 1);
  EXPECT_EQ(listing.entries.front(), (Entry{"10000", 1, ""}));
  EXPECT_EQ(listing.entries.back(), (Entry{"deep/ü & <x>", 2, ""}));
  EXPECT_EQ(store.ReadAll(Inside(listing.at, "deep/ü & <x>").value(), 2).value(), "yy");
  EXPECT_TRUE(store.List(At("s3://bucket/nothing/")).value().entries.empty());
}

TEST_F(S3Test, WrongKeysAreRefusedAndNotShown) {
  const Address object = At("s3://bucket/refused");
  ASSERT_TRUE(MakeStore().Write(object, Bytes("x")).ok());
  settings_.credentials.s3.secret_key = Secret("wrong-secret");
  const Store store = MakeStore();
  for (const Status& status :
       {store.Write(object, Bytes("y")).status(), store.Look(object).status(),
        store.List(At("s3://bucket/")).status()}) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(Message(status)),
                AllOf(HasSubstr("AWS_SECRET_ACCESS_KEY"), Not(HasSubstr("wrong-secret"))));
  }
  EXPECT_THAT(std::string(Message(store.Write(object, Bytes("y")).status())),
              HasSubstr("SignatureDoesNotMatch"));
  settings_.credentials.s3 = {};
  EXPECT_TRUE(absl::IsPermissionDenied(MakeStore().ReadAll(object, 10).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(MakeStore().SignRead(object, absl::Hours(1)).status()));
}

TEST_F(S3Test, SignedAddressesDoOneThing) {
  const Store store = MakeStore();
  const Address object = At("s3://bucket/signed/a b+c"), other = At("s3://bucket/signed/new");
  ASSERT_TRUE(store.Write(object, Bytes("hello world")).ok());
  const SignedAddress read = store.SignRead(object, absl::Minutes(5)).value();
  const SignedAddress write = store.SignWrite(other, absl::Minutes(5)).value();
  ASSERT_TRUE(read.expires && write.expires);
  EXPECT_THAT(read.url, Not(HasSubstr("need")));

  // A worker without credentials.
  Settings none;
  const Store worker(none, options_);
  const Version version = worker.Look(At(read.url)).value();
  EXPECT_EQ(version, store.Look(object).value());
  std::string part(5, '\0');
  ASSERT_TRUE(
      worker.ReadInto(At(read.url), version, 6, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_EQ(part, "world");
  ASSERT_TRUE(worker.Write(At(write.url), Bytes("written")).ok());
  EXPECT_EQ(store.ReadAll(other, 100).value(), "written");

  EXPECT_TRUE(absl::IsPermissionDenied(worker.Write(At(read.url), Bytes("x")).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(worker.Look(At(write.url)).status()));
  std::string moved = read.url;
  moved.replace(moved.find("signed/"), 7, "singed/");
  const Status refused = worker.Look(At(moved)).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_THAT(std::string(Message(refused)), Not(HasSubstr("X-Amz-Signature")));
  EXPECT_TRUE(absl::IsInvalidArgument(store.SignRead(object, absl::Hours(24 * 8)).status()));
}

TEST_F(S3Test, AddressesExpire) {
  // Signed an hour ago, for a minute.
  const ToSign request{
      .method = "GET", .host = settings_.endpoints.s3.substr(7), .path = "/bucket/signed/expired"};
  ASSERT_TRUE(MakeStore().Write(At("s3://bucket/signed/expired"), Bytes("x")).ok());
  const auto url = [&](absl::Duration ago) {
    return settings_.endpoints.s3 + request.path + "?" +
           SignQuery(request, settings_.credentials.s3, {.region = "us-east-1"},
                     absl::FromUnixMillis(UnixMsNow()) - ago, absl::Minutes(1));
  };
  EXPECT_EQ(MakeStore().ReadAll(At(url(absl::ZeroDuration())), 10).value(), "x");
  EXPECT_TRUE(absl::IsPermissionDenied(MakeStore().ReadAll(At(url(absl::Hours(1))), 10).status()));
  // A worker asks again, and keeps to the version.
  const Address object = At("s3://bucket/signed/expired");
  const Version version = MakeStore().Look(object).value();
  int asked = 0;
  options_.ask_signed = [&](const Address&, const http::Call&) {
    const absl::Duration ago = asked++ == 0 ? absl::Hours(1) : absl::ZeroDuration();
    return std::optional(SignedAddress{.url = url(ago), .expires = std::nullopt});
  };
  const Store worker(Settings(), options_);
  std::string text(1, '\0');
  EXPECT_TRUE(worker.ReadInto(object, version, 0, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(text, "x");
  EXPECT_EQ(asked, 2);
  ASSERT_TRUE(MakeStore().Write(object, Bytes("y")).ok());
  EXPECT_TRUE(absl::IsAborted(
      worker.ReadInto(object, version, 0, std::as_writable_bytes(std::span(text)))));
  EXPECT_EQ(worker.Look(object)->bytes, 1);
}

TEST_F(S3Test, LargeObjectsAreWrittenInParts) {
  ThroughTheProxy();
  const Store store = MakeStore();
  const std::string text = testing::Fill('m', 17 * kMega + 5);
  const Address object = At("s3://bucket/large/one");
  server_->proxy.Fault("s3", {{"method", "PUT"}, {"with", "partNumber=2"}, {"status", 503}});
  server_->proxy.Fault("s3", {{"method", "PUT"}, {"with", "partNumber=3"}, {"lose", true}});
  server_->proxy.Do("log");
  const Version version = store.Write(object, Bytes(text)).value();
  EXPECT_EQ(store.Look(object).value(), version);
  EXPECT_GE(pauses_, 1);  // libcurl sends again by itself what got no answer
  int parts = 0;
  for (const Json& request : server_->proxy.Do("log")) {
    parts += std::string(request["path"]).find("partNumber=") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(parts, 4 + 2);
  const std::string path = server_->folder.path() + "/read";
  ASSERT_TRUE(store.ReadToFile(object, version, path).ok());
  EXPECT_EQ(Sha256HexOfFile(path).value(), Sha256Hex(text));
}

TEST_F(S3Test, ALostAnswerAtTheEndOfAnUploadDoesNotLoseTheObject) {
  ThroughTheProxy();
  const Store store = MakeStore();
  const std::string text = testing::Fill('l', 9 * kMega);
  const Address object = At("s3://bucket/large/lost");
  server_->proxy.Fault("s3", {{"method", "POST"}, {"with", "uploadId="}, {"lose", true}});
  const auto version = store.Write(object, Bytes(text));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(store.Look(object).value(), *version);
}

TEST_F(S3Test, AnUploadThatFailsIsAborted) {
  ThroughTheProxy();
  options_.patience.attempts = 1;
  const Store store = MakeStore();
  const std::string text = testing::Fill('f', 17 * kMega);
  const Address object = At("s3://bucket/failed/one");
  server_->proxy.Fault("s3", {{"method", "PUT"}, {"with", "partNumber=2"}, {"status", 500}});
  EXPECT_TRUE(absl::IsUnavailable(store.Write(object, Bytes(text)).status()));
  // The server answers 200, and an error in the body.
  server_->proxy.Fault("s3", {{"method", "POST"},
                              {"with", "uploadId="},
                              {"status", 200},
                              {"body", "<Error><Code>InvalidPart</Code></Error>"}});
  const Status status = store.Write(object, Bytes(text)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("InvalidPart"));
  // Given up while a part is under way.
  server_->proxy.Fault("s3", {{"method", "PUT"}, {"with", "partNumber=1"}, {"hang", true}});
  server_->proxy.Do("log");
  std::atomic<bool> is_given_up = false;
  std::jthread thread([&] {
    server_->proxy.Do("wait", {{"count", 2}});
    is_given_up = true;
  });
  const Status cancelled =
      store.Write(object, Bytes(text), {.given_up = [&] { return is_given_up.load(); }}).status();
  EXPECT_TRUE(absl::IsCancelled(cancelled)) << cancelled;
  thread.join();
  server_->proxy.Do("release");
  EXPECT_TRUE(absl::IsNotFound(store.Look(object).status()));
  EXPECT_THAT(Unfinished(), Not(HasSubstr("failed/one")));
}

TEST_F(S3Test, AFolderGetsFilesInTheirOrder) {
  ThroughTheProxy();
  const Store store = MakeStore();
  const Address folder = At("s3://bucket/export/");
  ASSERT_TRUE(store.Write(At("s3://bucket/export/old"), Bytes("x")).ok());
  const std::string large = testing::Fill('l', 9 * kMega);
  EXPECT_FALSE(store.PrepareWrites(folder).value());
  EXPECT_EQ(store.List(folder).value().entries.size(), 1);  // it has left nothing
  EXPECT_THAT(Unfinished(), Not(HasSubstr("longhaul-may-write")));
  server_->proxy.Do("log");
  std::atomic<uint64_t> most = 0;
  const auto progress = [&](uint64_t bytes) {
    if (bytes > most) most = bytes;
  };
  server_->proxy.Fault("s3", {{"method", "PUT"}, {"with", "partNumber=1"}, {"status", 503}});
  const Status status = store.WriteAll(
      folder, {.files = {{"model.safetensors", Bytes(large)}, {"config.json", Bytes("{}")}},
               .removed = {"old", "never there"},
               .progress = progress});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(pauses_, 1);
  EXPECT_EQ(most, large.size() + 2);
  const Json log = server_->proxy.Do("log");
  EXPECT_EQ(log.front()["method"], "DELETE");
  EXPECT_EQ(log.back()["path"], "/bucket/export/config.json");
  const Listing listing = store.List(folder).value();
  ASSERT_EQ(listing.entries.size(), 2);
  EXPECT_EQ(store.ReadAll(At("s3://bucket/export/model.safetensors"), large.size()).value(), large);
  EXPECT_TRUE(absl::IsNotFound(store.PrepareWrites(At("s3://no-such-bucket/x/")).status()));
  const Address google = At("gs://bucket/google-export/");
  EXPECT_TRUE(store.PrepareWrites(google).ok());
  EXPECT_TRUE(store.WriteAll(google, {.files = {{"config.json", Bytes("{}")}}}).ok());
  EXPECT_EQ(store.List(google).value().entries.size(), 1);
  // Keys that may not write are found out beforehand.
  settings_.credentials.s3.secret_key = Secret("wrong");
  EXPECT_TRUE(absl::IsPermissionDenied(MakeStore().PrepareWrites(folder).status()));
  settings_.credentials.s3 = {};
  const Status none = MakeStore().PrepareWrites(folder).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(Message(none)), HasSubstr("set AWS_ACCESS_KEY_ID"));
}

TEST_F(S3Test, ObjectsAreDeleted) {
  ThroughTheProxy();
  const Store store = MakeStore();
  const Address object = At("s3://bucket/old/step 1/a");
  ASSERT_TRUE(store.Write(object, Bytes("x")).ok());
  server_->proxy.Fault("s3", {{"method", "DELETE"}, {"status", 503}});
  EXPECT_TRUE(store.Delete(object).ok());
  EXPECT_EQ(pauses_, 1);
  EXPECT_TRUE(absl::IsNotFound(store.Look(object).status()));
  EXPECT_TRUE(store.Delete(object).ok());  // there is none
  EXPECT_TRUE(absl::IsInvalidArgument(store.Delete(At("s3://bucket/old/"))));
  EXPECT_TRUE(absl::IsInvalidArgument(store.Delete(At("https://host/a"))));
  settings_.credentials.s3.secret_key = Secret("wrong");
  EXPECT_TRUE(absl::IsPermissionDenied(MakeStore().Delete(object)));
}

TEST_F(S3Test, AnObjectThatChangesIsNoticed) {
  const Store store = MakeStore();
  const Address object = At("s3://bucket/changing");
  const Version first = store.Write(object, Bytes("first")).value();
  const Version second = store.Write(object, Bytes("other")).value();
  EXPECT_NE(first.tag, second.tag);
  std::string text(5, '\0');
  const auto into = std::as_writable_bytes(std::span(text));
  EXPECT_TRUE(absl::IsAborted(store.ReadInto(object, first, 0, into)));
  EXPECT_TRUE(store.ReadInto(object, second, 0, into).ok());
  EXPECT_EQ(text, "other");
}

}  // namespace
}  // namespace longhaul::remote
