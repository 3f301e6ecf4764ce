// Store against a hub and a web server of our own that misbehave (tests/support/hub_server.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/remote/store.h"
#include "tests/support/silent_listener.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/base/remote/hub_server.h"

namespace longhaul::remote {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr size_t kPart = 10'000, kLarge = 123'457;

class HubTest : public ::testing::Test {
 protected:
  void SetUp() override {
    settings_.endpoints.hub = server_.hub();
    options_ = longhaul::testing::LocalOptions(kPart);
    options_.patience.sleep = [this](absl::Duration pause) {
      const std::lock_guard lock(mutex_);
      pauses_.push_back(pause);
    };
    commit_ = server_.Do("publish", {{"repository", "models/org/model"},
                                     {"revision", "main"},
                                     {"files",
                                      {{"config.json", {"a", 400}},
                                       {"weights/model.safetensors", {"b", kLarge}},
                                       {"weights/empty", {"b", 0}}}}});
  }

  Store MakeStore() const { return Store(settings_, options_); }
  static Address At(const std::string& text) { return ParseAddress(text).value(); }
  std::string ReadText(const Store& store, const Address& address, const Version& version,
                       uint64_t first, uint64_t count) {
    std::string text(count, '\0');
    status_ = store.ReadInto(address, version, first, std::as_writable_bytes(std::span(text)));
    return status_.ok() ? text : "";
  }
  std::string Web(const std::string& path, char seed, size_t size, const Json& etag = "\"one\"") {
    server_.Do("web",
               {{"path", "/web/" + path}, {"what", {std::string(1, seed), size}}, {"etag", etag}});
    return server_.cdn() + "/web/" + path;
  }
  static std::string ErrorText(const Status& status) { return std::string(Message(status)); }

  testing::HubServer server_;
  Settings settings_;
  Options options_;
  std::string commit_;
  Status status_;
  std::mutex mutex_;
  std::vector<absl::Duration> pauses_;
  const testing::TempDir folder_;
  const Address large_ = At("hf://org/model/weights/model.safetensors");
};

TEST_F(HubTest, AListNamesTheCommitAndSizes) {
  const Store store = MakeStore();
  const Listing listing = store.List(At("hf://org/model")).value();
  EXPECT_EQ(listing.at.revision, commit_);
  EXPECT_THAT(listing.entries,
              ElementsAre(Entry{"config.json", 400, ""}, Entry{"weights/empty", 0, ""},
                          Entry{"weights/model.safetensors", kLarge,
                                Sha256Hex(testing::Fill('b', kLarge))}));
  // A folder; and the commit stays what it is when the branch moves on.
  server_.Do(
      "publish",
      {{"repository", "models/org/model"}, {"revision", "main"}, {"files", {{"x", {"a", 1}}}}});
  Address folder = listing.at;
  folder.path = "weights";
  const Listing again = store.List(folder).value();
  EXPECT_EQ(again.at.revision, commit_);
  ASSERT_EQ(again.entries.size(), 2);
  EXPECT_EQ(Inside(again.at, again.entries[0].path).value().path, "weights/empty");
  EXPECT_EQ(store.List(At("hf://org/model")).value().entries.size(), 1);
}

TEST_F(HubTest, ReadsSmallAndLargeFilesAndRanges) {
  const Store store = MakeStore();
  EXPECT_EQ(store.ReadAll(At("hf://org/model/config.json"), 1000).value(), testing::Fill('a', 400));
  EXPECT_EQ(store.ReadAll(At("hf://org/model/weights/empty"), 0).value(), "");
  EXPECT_TRUE(
      absl::IsFailedPrecondition(store.ReadAll(At("hf://org/model/config.json"), 399).status()));
  const Version version = store.Look(large_).value();
  EXPECT_EQ(version.bytes, kLarge);
  const std::string all = testing::Fill('b', kLarge);
  for (const auto& [first, count] : {std::pair<uint64_t, uint64_t>{0, kLarge},
                                     {0, 1},
                                     {kLarge - 1, 1},
                                     {kPart - 1, 2},
                                     {33'333, 44'444},
                                     {5, 0}}) {
    EXPECT_EQ(ReadText(store, large_, version, first, count), all.substr(first, count)) << status_;
    EXPECT_TRUE(status_.ok()) << status_;
  }
  ReadText(store, large_, version, kLarge - 1, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(status_));
  const std::string path = folder_.path() + "/file";
  ASSERT_TRUE(store.ReadToFile(large_, version, path).ok());
  EXPECT_EQ(ReadFile(path).value(), all);
}

TEST_F(HubTest, TheHubIsAskedOnceForManyRanges) {
  const Version version = MakeStore().Look(large_).value();
  server_.Do("log");
  EXPECT_EQ(ReadText(MakeStore(), large_, version, 0, kLarge), testing::Fill('b', kLarge));
  int hub = 0, cdn = 0;
  for (const Json& request : server_.Do("log")) ++(request["server"] == "hub" ? hub : cdn);
  EXPECT_EQ(hub, 1);
  EXPECT_EQ(cdn, 13);
}

TEST_F(HubTest, AnAddressOfTheCdnThatHasExpiredIsAskedForAgain) {
  const Store store = MakeStore();
  const Version version = store.Look(large_).value();
  EXPECT_EQ(ReadText(store, large_, version, 0, 10), testing::Fill('b', 10));
  server_.Do("revoke");
  EXPECT_EQ(ReadText(store, large_, version, 0, kLarge), testing::Fill('b', kLarge)) << status_;
}

TEST_F(HubTest, TokensAreForTheHubAlone) {
  server_.Do("publish", {{"repository", "models/private/model"},
                         {"revision", "main"},
                         {"files", {{"small", {"a", 10}}, {"large", {"b", 5000}}}}});
  const Address large = At("hf://private/model/large");
  const Status refused = MakeStore().Look(large).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_THAT(ErrorText(refused), HasSubstr("set HF_TOKEN"));
  settings_.credentials.hub_token = Secret("hf_wrong");
  EXPECT_THAT(ErrorText(MakeStore().Look(large).status()), Not(HasSubstr("hf_wrong")));
  settings_.credentials.hub_token = Secret("hf_good");
  const Store store = MakeStore();
  server_.Do("log");
  EXPECT_EQ(store.ReadAll(large, 5000).value(), testing::Fill('b', 5000));
  EXPECT_EQ(store.ReadAll(At("hf://private/model/small"), 5000).value(), testing::Fill('a', 10));
  EXPECT_EQ(store.List(At("hf://private/model")).value().entries.size(), 2);
  int cdn = 0;
  for (const Json& request : server_.Do("log")) {
    const bool is_cdn = request["server"] == "cdn";
    EXPECT_EQ(request["authorization"], is_cdn ? Json() : Json("Bearer hf_good")) << request;
    cdn += is_cdn ? 1 : 0;
  }
  EXPECT_GT(cdn, 0);
}

TEST_F(HubTest, ASignedAddressNeedsNoToken) {
  server_.Do("publish", {{"repository", "models/private/model"},
                         {"revision", "main"},
                         {"files", {{"small", {"a", 10}}, {"large", {"b", 5000}}}}});
  settings_.credentials.hub_token = Secret("hf_good");
  const SignedAddress address =
      MakeStore().SignRead(At("hf://private/model/large"), absl::Hours(1)).value();
  EXPECT_EQ(address.expires, absl::FromUnixSeconds(2'000'000'000));
  settings_.credentials = {};
  EXPECT_EQ(MakeStore().ReadAll(At(address.url), 5000).value(), testing::Fill('b', 5000));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Store(
                                     [&] {
                                       Settings settings = settings_;
                                       settings.credentials.hub_token = Secret("hf_good");
                                       return settings;
                                     }(),
                                     options_)
                                     .SignRead(At("hf://private/model/small"), absl::Hours(1))
                                     .status()));
  // Anybody may read a public file.
  const SignedAddress open =
      MakeStore().SignRead(At("hf://org/model/config.json"), absl::Hours(1)).value();
  EXPECT_EQ(MakeStore().ReadAll(At(open.url), 1000).value(), testing::Fill('a', 400));
}

TEST_F(HubTest, WhatIsNotThereIsNamed) {
  const Store store = MakeStore();
  for (const auto& [address, reason] :
       {std::pair<const char*, const char*>{"hf://org/none/x", "RepoNotFound"},
        {"hf://org/model@v9/x", "RevisionNotFound"},
        {"hf://datasets/org/model/x", "RepoNotFound"},
        {"hf://org/model/none", "EntryNotFound"}}) {
    const Status status = store.Look(At(address)).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(ErrorText(status), AllOf(HasSubstr(address), HasSubstr(reason)));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(store.Look(At("hf://org/model/")).status()));
  EXPECT_TRUE(absl::IsNotFound(store.List(At("hf://org/none/")).status()));
}

TEST_F(HubTest, TroubleThatPassesIsWaitedFor) {
  const Store store = MakeStore();
  server_.Fault("hub", {{"status", 429}, {"headers", {{"Retry-After", "77"}}}});
  server_.Fault("hub", {{"status", 503}});
  server_.Fault("cdn", {{"status", 500}});
  server_.Fault("cdn", {{"status", 502}});
  server_.Fault("cdn", {{"status", 504}});
  EXPECT_EQ(store.ReadAll(large_, kLarge).value(), testing::Fill('b', kLarge));
  ASSERT_EQ(pauses_.size(), 5);
  EXPECT_EQ(pauses_[0], absl::Seconds(77));
  EXPECT_LE(pauses_[1], absl::Seconds(1));
}

TEST_F(HubTest, TroubleThatStaysEndsTheCall) {
  options_.patience.attempts = 3;
  const Store store = MakeStore();
  for (int i = 0; i < 3; ++i) server_.Fault("hub", {{"status", 503}});
  const Status status = store.Look(large_).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(ErrorText(status), HasSubstr("the server answers 503"));
  EXPECT_EQ(pauses_.size(), 2);
  // A pause that is too long is not waited for.
  server_.Fault("hub", {{"status", 429}, {"headers", {{"Retry-After", "100000"}}}});
  EXPECT_TRUE(absl::IsUnavailable(store.Look(large_).status()));
  EXPECT_EQ(pauses_.size(), 2);
  // Other refusals are final.
  server_.Fault("hub", {{"status", 501}});
  EXPECT_TRUE(absl::IsFailedPrecondition(store.Look(large_).status()));
  EXPECT_EQ(pauses_.size(), 2);
}

TEST_F(HubTest, ReadsGoOnBehindTheLastByteThatCame) {
  options_.parallel = 1;
  options_.part_bytes = kLarge;
  options_.patience.attempts = 2;
  const Store store = MakeStore();
  const Version version = store.Look(large_).value();
  // More breaks than attempts: each brings something.
  server_.Fault("cdn", {{"cut", 1000}});
  server_.Fault("cdn", {{"cut", 50'000}});
  server_.Fault("cdn", {{"cut", 1}, {"no_length", true}});
  server_.Do("log");
  EXPECT_EQ(ReadText(store, large_, version, 0, kLarge), testing::Fill('b', kLarge)) << status_;
  std::vector<std::string> ranges;
  for (const Json& request : server_.Do("log")) {
    if (request["server"] == "cdn") ranges.push_back(request["range"]);
  }
  EXPECT_THAT(ranges, ElementsAre("bytes=0-123456", "bytes=1000-123456", "bytes=51000-123456",
                                  "bytes=51001-123456"));
}

TEST_F(HubTest, BytesOfTwoVersionsAreNeverMixed) {
  options_.parallel = 1;
  const Store store = MakeStore();
  // The web server's file changes between Look and Read: If-Match, or the tag of its answer.
  for (const bool heeds_match : {true, false}) {
    const Address file = At(Web("file", 'a', 50'000));
    const Version version = store.Look(file).value();
    EXPECT_EQ(version, (Version{50'000, "\"one\""}));
    EXPECT_EQ(ReadText(store, file, version, 0, 50'000), testing::Fill('a', 50'000));
    Web("file", 'b', 50'000, "\"two\"");
    if (!heeds_match) server_.Fault("cdn", {{"no_match", true}});
    uint64_t taken = 0;
    const Status status = store.Read(file, version, 0, 50'000, [&](uint64_t, auto piece) {
      taken += piece.size();
      return absl::OkStatus();
    });
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(ErrorText(status),
                HasSubstr("has changed: expected 50000 bytes with the tag \"one\""));
    EXPECT_EQ(taken, 0);
  }
  // Without tags, sizes tell.
  const Address file = At(Web("untagged", 'a', 50'000, nullptr));
  const Version version = store.Look(file).value();
  EXPECT_EQ(version, (Version{50'000, ""}));
  Web("untagged", 'a', 49'999, nullptr);
  EXPECT_EQ(ReadText(store, file, version, 0, 100), "");
  EXPECT_TRUE(absl::IsAborted(status_)) << status_;
  Web("untagged", 'a', 10, nullptr);
  EXPECT_EQ(ReadText(store, file, version, 20, 100), "");
  EXPECT_TRUE(absl::IsAborted(status_)) << status_;
  // Two copies of the CDN that differ.
  server_.Do("log");
  const Version large = store.Look(large_).value();
  server_.Fault("cdn", {{"set", {{"ETag", "\"other\""}}}});
  ReadText(store, large_, large, 0, kLarge);
  EXPECT_TRUE(absl::IsAborted(status_)) << status_;
  // The hub's branch has moved on.
  server_.Do("publish", {{"repository", "models/org/model"},
                         {"revision", "main"},
                         {"files", {{"weights/model.safetensors", {"c", kLarge}}}}});
  const Store fresh = MakeStore();
  ReadText(fresh, large_, large, 0, 10);
  EXPECT_TRUE(absl::IsAborted(status_)) << status_;
  EXPECT_EQ(fresh.ReadAll(large_, kLarge).value(), testing::Fill('c', kLarge));
}

TEST_F(HubTest, AnswersThatDoNotFitAreRefused) {
  const Store store = MakeStore();
  const Address file = At(Web("file", 'a', 50'000));
  const Version version = store.Look(file).value();
  server_.Fault("cdn", {{"set", {{"Content-Range", "bytes 0-99/50000"}}}});
  ReadText(store, file, version, 100, 100);
  EXPECT_TRUE(absl::IsDataLoss(status_)) << status_;
  EXPECT_THAT(ErrorText(status_),
              HasSubstr("expected bytes 100-199, the server says 'bytes 0-99/50000'"));
  server_.Fault("cdn", {{"extra", 5}});
  ReadText(store, file, version, 100, 100);
  EXPECT_TRUE(absl::IsDataLoss(status_)) << status_;
  server_.Fault("cdn", {{"no_range", true}});
  ReadText(store, file, version, 100, 100);
  EXPECT_TRUE(absl::IsFailedPrecondition(status_)) << status_;
  // A server without ranges still gives a small file whole.
  server_.Fault("cdn", {{"no_range", true}});
  server_.Fault("cdn", {{"no_range", true}});
  const Address small = At(Web("small", 'a', 500));
  EXPECT_EQ(store.ReadAll(small, 500).value(), testing::Fill('a', 500));
  EXPECT_EQ(store.ReadAll(At(Web("empty", 'a', 0)), 0).value(), "");
}

TEST_F(HubTest, AFailedReadLeavesNoFile) {
  options_.patience.attempts = 1;
  const Store store = MakeStore();
  const Version version = store.Look(large_).value();
  server_.Fault("cdn", {{"status", 500}});
  EXPECT_FALSE(store.ReadToFile(large_, version, folder_.path() + "/file").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(HubTest, RedirectsEnd) {
  const Store store = MakeStore();
  for (int i = 0; i < 11; ++i) {
    server_.Fault("hub", {{"status", 307},
                          {"headers", {{"Location", "/org/model/resolve/main/config.json"}}}});
  }
  const Status status = store.Look(At("hf://org/model/config.json")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(ErrorText(status), HasSubstr("expected at most 10 redirects"));
}

TEST_F(HubTest, HostsThatAreNotAllowedAreNotReached) {
  const auto refused = [&](const http::HostRules& rules, const std::string& text) {
    options_.hosts = rules;
    server_.Do("log");
    const Status status = MakeStore().ReadAll(At(text), 1 << 20).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    return ErrorText(status);
  };
  const std::string hub = "127.0.0.1:" + std::to_string(server_.hub_port());
  EXPECT_THAT(refused({}, Web("file", 'a', 100)), HasSubstr("expected https"));
  // Allowed by its name, but not as a local host.
  const std::string file = server_.tls() + "/web/file";
  EXPECT_THAT(refused({}, file), HasSubstr("is a private or local address"));
  EXPECT_THAT(refused({.hosts = {"127.0.0.1:*"}}, file),
              HasSubstr("is a private or local address"));
  for (const char* other : {"localhost", "2130706433", "[::ffff:127.0.0.1]"}) {
    std::string named = file;
    named.replace(named.find("127.0.0.1"), 9, other);
    EXPECT_THAT(refused({}, named), HasSubstr("is a private or local address")) << named;
  }
  EXPECT_EQ(server_.Do("log"), Json::array());
  // A redirect from a host that is allowed to one that is not.
  EXPECT_THAT(refused({.hosts = {"example.org"}, .local_hosts = {hub}},
                      "hf://org/model/weights/model.safetensors"),
              HasSubstr("expected https"));
  settings_.endpoints.ca_file = server_.certificate();
  server_.Fault("hub", {{"status", 302}, {"headers", {{"Location", file}}}});
  EXPECT_THAT(refused({.local_hosts = {hub}}, server_.hub() + "/moved"),
              HasSubstr("is a private or local address"));
  server_.Fault("hub", {{"status", 302}, {"headers", {{"Location", file}}}});
  EXPECT_THAT(refused({.hosts = {"example.org"}, .local_hosts = {hub}}, server_.hub() + "/moved"),
              HasSubstr("is not among the allowed hosts"));
  for (const Json& request : server_.Do("log")) EXPECT_EQ(request["server"], "hub");
}

TEST_F(HubTest, ACallEndsWhenItIsGivenUpAndAtItsDeadline) {
  const Store store = MakeStore();
  const Address file = At(Web("file", 'a', 50'000));
  const Version version = store.Look(file).value();
  server_.Do("log");
  server_.Fault("cdn", {{"hang", true}});
  std::atomic<bool> is_given_up = false;
  std::jthread thread([&] {
    testing::HubServer::Json arguments = {{"count", 1}};
    server_.Do("wait", arguments);
    is_given_up = true;
  });
  std::string text(50'000, '\0');
  const auto into = std::as_writable_bytes(std::span(text));
  EXPECT_TRUE(absl::IsCancelled(
      store.ReadInto(file, version, 0, into, {.given_up = [&] { return is_given_up.load(); }})));
  thread.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      store.ReadInto(file, version, 0, into, {.deadline = Deadline::After(absl::ZeroDuration())})));
  server_.Do("release");
}

TEST_F(HubTest, AServerThatIsSilentIsLeft) {
  const testing::SilentListener silent;
  options_.silence_limit = absl::Seconds(1);
  options_.patience.attempts = 2;
  const Status status = MakeStore().Look(At("http://" + silent.address() + "/x")).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(pauses_.size(), 1);
}

TEST_F(HubTest, AWebAddressIsWrittenByPut) {
  const Store store = MakeStore();
  server_.Fault("cdn", {{"status", 503}});
  const std::string text = testing::Fill('p', 500'000);
  const Address file = At(server_.cdn() + "/web/written?signed");
  EXPECT_EQ(store.Write(file, std::as_bytes(std::span(text))).value(),
            (Version{text.size(), "\"put\""}));
  EXPECT_EQ(store.ReadAll(file, text.size()).value(), text);
  EXPECT_TRUE(absl::IsInvalidArgument(store.List(At(server_.cdn() + "/web/")).status()));
}

TEST_F(HubTest, CertificatesAreChecked) {
  Web("file", 'a', 100);
  const Address file = At(server_.tls() + "/web/file");
  options_.patience.attempts = 1;
  const Status unknown = MakeStore().Look(file).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(unknown)) << unknown;
  settings_.endpoints.ca_file = server_.certificate();
  EXPECT_EQ(MakeStore().ReadAll(file, 100).value(), testing::Fill('a', 100));
  // For another name.
  Address named = file;
  named.place.replace(named.place.find("127.0.0.1"), 9, "localhost");
  options_.hosts.hosts.clear();
  options_.hosts.local_hosts = {"localhost:*"};
  const Status other = MakeStore().Look(named).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
}

TEST_F(HubTest, ARedirectNeverLeadsFromHttpsToHttp) {
  settings_.endpoints.ca_file = server_.certificate();
  server_.Fault("tls", {{"status", 302}, {"headers", {{"Location", Web("file", 'a', 100)}}}});
  const Status status = MakeStore().Look(At(server_.tls() + "/web/file")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(ErrorText(status), HasSubstr("from https to http"));
}

TEST_F(HubTest, SecretsOfARequestStayWithItsOrigin) {
  const http::Client client({.hosts = options_.hosts});
  const http::Request request{.url = server_.hub() + "/moved",
                              .secrets = {"Authorization: secret"}};
  server_.Fault("hub", {{"status", 302}, {"headers", {{"Location", "/moved/again"}}}});
  server_.Fault("hub", {{"status", 302}, {"headers", {{"Location", Web("file", 'a', 100)}}}});
  server_.Do("log");
  EXPECT_EQ(client.Send(request, {}).value().body, testing::Fill('a', 100));
  const Json log = server_.Do("log");
  ASSERT_EQ(log.size(), 3);
  EXPECT_EQ(log[1]["path"], "/moved/again");
  EXPECT_EQ(log[1]["authorization"], "secret");
  EXPECT_EQ(log[2]["server"], "cdn");
  EXPECT_EQ(log[2]["authorization"], Json());
}

TEST_F(HubTest, TagsOfStrangersDoNotBecomeHeaders) {
  const Address file = At(Web("file", 'a', 100));
  ReadText(MakeStore(), file, {.bytes = 100, .tag = "\"x\"\r\nAuthorization: y"}, 0, 100);
  EXPECT_TRUE(absl::IsInvalidArgument(status_)) << status_;
}

TEST_F(HubTest, FilesAreCommitted) {
  const auto write = [&](const std::string& address, const std::string& text) {
    return MakeStore().Write(At(address), std::as_bytes(std::span(text)));
  };
  const Status no_token = write("hf://org/model/x", "x").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(no_token));
  EXPECT_THAT(ErrorText(no_token), HasSubstr("set HF_TOKEN"));
  settings_.credentials.hub_token = Secret("hf_wrong");
  EXPECT_TRUE(absl::IsPermissionDenied(write("hf://org/model/x", "x").status()));
  settings_.credentials.hub_token = Secret("hf_good");
  server_.Do("log");
  const std::pair<const char*, std::string> files[] = {
      {"hf://org/model/new/small file", "small"},
      {"hf://org/model/new/whole", testing::Fill('w', 5'000)},
      {"hf://org/model/new/parts", testing::Fill('p', 30'001)},
      {"hf://org/model/new/again", testing::Fill('p', 30'001)}};  // the hub has these bytes
  server_.Fault("cdn", {{"method", "PUT"}, {"status", 503}});
  server_.Fault("hub", {{"with", "/commit/"}, {"status", 503}});
  for (const auto& [address, text] : files) {
    const auto version = write(address, text);
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_EQ(version->bytes, text.size());
    EXPECT_EQ(MakeStore().Look(At(address)).value(), *version);
    EXPECT_EQ(MakeStore().ReadAll(At(address), text.size()).value(), text);
  }
  EXPECT_EQ(MakeStore().List(At("hf://org/model/new/")).value().entries.size(), 4);
  EXPECT_EQ(MakeStore().List(At("hf://org/model")).value().entries.size(), 7);
  int puts = 0;
  for (const Json& request : server_.Do("log")) {
    EXPECT_TRUE(request["server"] == "hub" || request["authorization"].is_null()) << request;
    puts += request["method"] == "PUT" ? 1 : 0;
  }
  EXPECT_EQ(puts, 1 + 1 + 8);
}

}  // namespace
}  // namespace longhaul::remote
