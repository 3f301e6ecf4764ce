// Objects that are read at addresses which somebody else signs: a store with the hub's token stands
// for the coordinator, one without it for a worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/time/clock.h"
#include "base/remote/store.h"
#include "tests/unit/base/remote/hub_server.h"

namespace longhaul::remote {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr size_t kRange = 10'000, kFileBytes = 123'457;

class SignedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    settings_.endpoints.hub = server_.hub();
    options_ = longhaul::testing::LocalOptions(kRange);
    Publish('b');
    Settings own = settings_;
    own.credentials.hub_token = Secret("hf_good");
    owner_ = std::make_unique<Store>(own, options_);
    ask_ = [this](const Address& object, const http::Call& call) { return Ask(object, call); };
  }
  void Publish(char seed) {
    server_.Do("publish", {{"repository", "models/private/model"},
                           {"revision", "main"},
                           {"files", {{"large", {std::string(1, seed), kFileBytes}}}}});
  }
  StatusOr<std::optional<SignedAddress>> Ask(const Address& object, const http::Call& call) {
    ++asked_;
    LH_ASSIGN_OR_RETURN(SignedAddress address, owner_->SignRead(object, absl::Hours(1), call));
    return std::optional(std::move(address));
  }
  Store Worker() const {
    Options options = options_;
    options.ask_signed = ask_;
    return Store(settings_, options);
  }
  Status Read(const Store& worker, const Version& version) {
    text_.assign(kFileBytes, '\0');
    return worker.ReadInto(large_, version, 0, std::as_writable_bytes(std::span(text_)));
  }

  testing::HubServer server_;
  Settings settings_;
  Options options_;
  std::unique_ptr<Store> owner_;
  AskSigned ask_;
  std::atomic<int> asked_ = 0;
  std::string text_;
  const Address large_ = ParseAddress("hf://private/model/large").value();
};

TEST_F(SignedTest, ManyRangesNeedOneAddressAndNoToken) {
  const Store worker = Worker();
  const Version version = worker.Look(large_).value();
  EXPECT_EQ(version, owner_->Look(large_).value());
  server_.Do("log");
  ASSERT_TRUE(Read(worker, version).ok());
  EXPECT_EQ(text_, testing::Fill('b', kFileBytes));
  EXPECT_EQ(asked_, 1);
  for (const Json& request : server_.Do("log")) {
    EXPECT_EQ(request["server"], "cdn") << request;
    EXPECT_EQ(request["authorization"], Json()) << request;
  }
}

TEST_F(SignedTest, TheWorkersRulesHoldForSignedAddresses) {
  options_.hosts = {.hosts = {"huggingface.co"}};
  server_.Do("log");
  for (const char* url : {"http://169.254.169.254/a", "http://127.0.0.1:1/a", "https://[::1]/a",
                          "https://example.org/a", "https://localhost/a"}) {
    ask_ = [url](const Address&, const http::Call&) {
      return std::optional(SignedAddress{.url = url, .expires = std::nullopt});
    };
    EXPECT_TRUE(absl::IsPermissionDenied(Worker().Look(large_).status())) << url;
    EXPECT_TRUE(absl::IsPermissionDenied(Read(Worker(), {.bytes = kFileBytes, .tag = "x"}))) << url;
  }
  EXPECT_TRUE(server_.Do("log").empty());
}

TEST_F(SignedTest, AnAddressThatIsRefusedIsAskedForAgain) {
  const Store worker = Worker();
  const Version version = worker.Look(large_).value();
  server_.Do("revoke");
  ASSERT_TRUE(Read(worker, version).ok());
  EXPECT_EQ(text_, testing::Fill('b', kFileBytes));
  EXPECT_GE(asked_, 2);
  EXPECT_LE(asked_, 1 + 2 * options_.parallel);
}

TEST_F(SignedTest, AnAddressThatHasExpiredIsNotSent) {
  ask_ = [this](const Address& object,
                const http::Call& call) -> StatusOr<std::optional<SignedAddress>> {
    StatusOr<std::optional<SignedAddress>> address = Ask(object, call);
    if (asked_ == 1) (*address)->expires = absl::Now() - absl::Seconds(1);
    return address;
  };
  const Store worker = Worker();
  const Version version = worker.Look(large_).value();
  ASSERT_TRUE(Read(worker, version).ok());
  EXPECT_EQ(asked_, 2);
}

TEST_F(SignedTest, OneThatIsRefusedForEverEndsTheRead) {
  ask_ = [this](const Address& object,
                const http::Call& call) -> StatusOr<std::optional<SignedAddress>> {
    StatusOr<std::optional<SignedAddress>> address = Ask(object, call);
    if (address.ok()) (*address)->url += '0';
    return address;
  };
  const Store worker = Worker();
  const Status refused = Read(worker, worker.Look(large_).value());
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("hf://private/model/large"));
  EXPECT_THAT(std::string(Message(refused)), Not(HasSubstr("sig=")));
}

TEST_F(SignedTest, AnotherVersionIsNotRead) {
  const Version before = Worker().Look(large_).value();
  Publish('c');
  const Status changed = Read(Worker(), before);
  EXPECT_TRUE(absl::IsAborted(changed)) << changed;
  EXPECT_THAT(std::string(Message(changed)), HasSubstr("has changed"));
}

TEST_F(SignedTest, WhoSignsMayBeAwayForAWhile) {
  ask_ = [this](const Address& object,
                const http::Call& call) -> StatusOr<std::optional<SignedAddress>> {
    if (asked_ < 2) {
      ++asked_;
      return absl::UnavailableError("nobody is there");
    }
    return Ask(object, call);
  };
  EXPECT_TRUE(Worker().Look(large_).ok());
  ask_ = [this](const Address&, const http::Call&) -> StatusOr<std::optional<SignedAddress>> {
    ++asked_;
    return absl::UnavailableError("nobody is there");
  };
  asked_ = 0;
  EXPECT_TRUE(absl::IsUnavailable(Worker().Look(large_).status()));
  EXPECT_EQ(asked_, options_.patience.attempts);
}

TEST_F(SignedTest, ARefusalOfWhoSignsIsNotAskedAgain) {
  ask_ = [this](const Address&, const http::Call&) -> StatusOr<std::optional<SignedAddress>> {
    ++asked_;
    return absl::PermissionDeniedError("the run does not name it");
  };
  const Version version = owner_->Look(large_).value();
  const Status refused = Read(Worker(), version);
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_EQ(asked_, 1);
}

TEST_F(SignedTest, WithoutAnAddressTheServiceIsAskedAsEverybodyMay) {
  ask_ = [this](const Address&, const http::Call&) -> StatusOr<std::optional<SignedAddress>> {
    ++asked_;
    return std::optional<SignedAddress>();
  };
  EXPECT_TRUE(absl::IsPermissionDenied(Worker().Look(large_).status()));
  server_.Do("publish", {{"repository", "models/org/model"},
                         {"revision", "main"},
                         {"files", {{"large", {"d", kFileBytes}}}}});
  const Address open = ParseAddress("hf://org/model/large").value();
  EXPECT_EQ(Worker().ReadAll(open, kFileBytes).value(), testing::Fill('d', kFileBytes));
}

}  // namespace
}  // namespace longhaul::remote
