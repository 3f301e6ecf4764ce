// Whether one worker reaches another, over loopback transports.
#include "worker/measuring/reach_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tests/support/mailbox.h"
#include "transport/p2p/loopback/factory.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Side {
 public:
  Side()
      : transport_(*transport::loopback::CreateTransport({})),
        checks_({{"ucx", transport_.get()}},
                [this](v1::WorkerMessage message) { said_.Push(std::move(message)); }) {}
  ~Side() {
    checks_.Shutdown();
    transport_.reset();
  }

  void Expect(uint64_t check, const std::string& secret = "a secret") {
    checks_.Handle(CommandOf(check, secret, {transport_->address()}, false));
  }
  void Dial(uint64_t check, const std::vector<std::string>& addresses,
            const std::string& secret = "a secret") {
    checks_.Handle(CommandOf(check, secret, addresses, true));
  }
  void Shutdown() { checks_.Shutdown(); }
  const std::string& address() const { return transport_->address(); }
  bool silent() const { return said_.empty(); }
  v1::ReachTried Hear() {
    const auto message = said_.Take();
    EXPECT_TRUE(message.has_value()) << "no answer";
    return message ? message->reach_tried() : v1::ReachTried();
  }

 private:
  static v1::WorkerCommand CommandOf(uint64_t check, const std::string& secret,
                                     const std::vector<std::string>& addresses, bool dial) {
    v1::WorkerCommand command;
    v1::TryReach& ask = *command.mutable_try_reach();
    ask.set_check(check);
    ask.set_transport("ucx");
    ask.set_dial(dial);
    for (const std::string& address : addresses) ask.add_addresses(address);
    ask.set_link_secret(secret);
    ask.set_limit_seconds(3);
    return command;
  }

  std::unique_ptr<transport::Transport> transport_;
  testing::Mailbox<v1::WorkerMessage> said_;
  ReachChecks checks_;
};

TEST(ReachCheckTest, WhoIsReachedAnswersNothingAndWhoReachesDoes) {
  Side a, b;
  b.Expect(7);
  a.Dial(7, {b.address()});
  const v1::ReachTried tried = a.Hear();
  EXPECT_EQ(tried.check(), 7u);
  ASSERT_EQ(tried.problems_size(), 1);
  EXPECT_THAT(tried.problems(0), IsEmpty());
  EXPECT_TRUE(b.silent());
}

TEST(ReachCheckTest, EachAddressIsTriedByItself) {
  Side a, b;
  b.Expect(7);
  a.Dial(7, {b.address(), "nowhere"});
  const v1::ReachTried tried = a.Hear();
  ASSERT_EQ(tried.problems_size(), 2);
  EXPECT_THAT(tried.problems(0), IsEmpty());
  EXPECT_THAT(tried.problems(1), Not(IsEmpty()));
  EXPECT_THAT(tried.problems(1), Not(HasSubstr("run reach:")));
}

TEST(ReachCheckTest, ItCountsWhoAnswersNotThatSomebodyDoes) {
  Side a, b, other;
  b.Expect(7);
  other.Expect(8);
  a.Dial(7, {other.address()});  // where port mapping leads to another worker
  EXPECT_THAT(a.Hear().problems(0), Not(IsEmpty()));
  b.Expect(9);
  a.Dial(9, {b.address()}, "another secret");
  EXPECT_THAT(a.Hear().problems(0), Not(IsEmpty()));
}

TEST(ReachCheckTest, TwiceIsOnce) {
  Side a, b;
  a.Dial(7, {b.address()});  // is not expected yet, so it is still under way
  a.Dial(7, {b.address()});
  b.Expect(7);
  b.Expect(7);
  EXPECT_THAT(a.Hear().problems(0), IsEmpty());
  a.Dial(8, {"nowhere"});
  EXPECT_EQ(a.Hear().check(), 8u);  // and nothing of 7 again
}

// Opens a link and keeps it.
class Clinging : public transport::LinkHandler {
 public:
  void OnFrame(transport::Lane /*lane*/, std::span<const std::byte> /*payload*/) override {}
  void OnClosed(const Status& reason) override { closed.Push(reason); }

  testing::Mailbox<StatusOr<std::shared_ptr<transport::Link>>> opened;
  testing::Mailbox<Status> closed;
};

TEST(ReachCheckTest, WhoDialsAndDoesNotHangUpIsLeftWhenTheTimeIsOver) {
  Side b;
  b.Expect(7);
  const auto handler = std::make_shared<Clinging>();
  auto transport = *transport::loopback::CreateTransport({});
  transport->Dial({b.address()}, {RunId("reach:7"), Stamp(1), EdgeId(0)}, "a secret", handler, {},
                  Deadline::After(absl::Seconds(30)),
                  [&](auto link) { handler->opened.Push(std::move(link)); });
  const auto link = handler->opened.Take();
  ASSERT_TRUE(link && link->ok());
  EXPECT_TRUE(handler->closed.Take().has_value()) << "the link is still open";
  transport.reset();
}

TEST(ReachCheckTest, NothingIsBegunAfterTheEnd) {
  Side a, b;
  a.Shutdown();
  a.Dial(7, {b.address()});
  b.Dial(8, {"nowhere"});
  EXPECT_EQ(b.Hear().check(), 8u);
  EXPECT_TRUE(a.silent());
}

}  // namespace
}  // namespace longhaul::worker
