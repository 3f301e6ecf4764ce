// How links open, and how they do not.
#include <gmock/gmock.h>

#include "tests/conformance/transport/link_test.h"

namespace longhaul::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kShort = absl::Milliseconds(300);

TEST_P(LinkTest, OpensWhenExpectedFirst) {
  Open();
  EXPECT_EQ(dialler_link_->key(), Key());
  EXPECT_EQ(listener_link_->key(), Key());
  EXPECT_THAT(dialler_link_->Describe(),
              StartsWith(GetParam().name.substr(0, GetParam().name.find('_'))));
  EXPECT_THAT(dialler_link_->Describe(), HasSubstr(Shown(listener_->address())));
}

TEST_P(LinkTest, OpensWhenDialledFirst) {
  OpenResult dialled;
  OpenResult expected;
  dialler_->Dial({listener_->address()}, Key(), kSecret, at_dialler_, With({}),
                 Deadline::After(kPatience), dialled.Done());
  // A dial that is refused shows that the dialler was there first: the listener gives the other
  // link, dialled behind it, its turn.
  OpenResult other;
  dialler_->Dial({listener_->address()}, Key(7), kSecret, std::make_shared<RecordingHandler>(),
                 With({}), Deadline::After(kShort), other.Done());
  EXPECT_EQ(other.Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(dialled.calls(), 0);
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kPatience),
                    expected.Done());
  EXPECT_TRUE(expected.Wait().ok());
  EXPECT_TRUE(dialled.Wait().ok());
}

TEST_P(LinkTest, GoesOnToTheAddressThatWorks) {
  OpenResult expected;
  OpenResult dialled;
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kPatience),
                    expected.Done());
  dialler_->Dial({GetParam().nobody, listener_->address()}, Key(), kSecret, at_dialler_, With({}),
                 Deadline::After(kPatience), dialled.Done());
  EXPECT_TRUE(dialled.Wait().ok()) << dialled.Wait().status();
}

TEST_P(LinkTest, WrongSecretIsRefused) {
  OpenResult expected;
  OpenResult dialled;
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(absl::Seconds(2)),
                    expected.Done());
  dialler_->Dial({listener_->address()}, Key(), "another secret", at_dialler_, With({}),
                 Deadline::After(kPatience), dialled.Done());
  const Status refused = dialled.Wait().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("secret"));
  EXPECT_THAT(std::string(Message(refused)), HasSubstr(Shown(listener_->address())));
  // The listener goes on waiting for the right one.
  EXPECT_EQ(expected.calls(), 0);
  OpenResult right;
  dialler_->Dial({listener_->address()}, Key(), kSecret, at_dialler_, With({}),
                 Deadline::After(kPatience), right.Done());
  EXPECT_TRUE(right.Wait().ok()) << right.Wait().status();
}

TEST_P(LinkTest, UnknownKeyEndsAtTheDeadlineAndSaysWhy) {
  OpenResult expected;
  listener_->Expect(Key(0), kSecret, at_listener_, With({}), Deadline::After(kPatience),
                    expected.Done());
  const std::string why = "edge 1 is not expected there";
  Status status;
  for (int limit = 1; limit <= 16; limit *= 4) {  // a busy machine may not answer in a short one
    OpenResult dialled;
    dialler_->Dial({listener_->address()}, Key(1), kSecret, at_dialler_, With({}),
                   Deadline::After(limit * kShort), dialled.Done());
    status = dialled.Wait().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    if (std::string(Message(status)).find(why) != std::string::npos) break;
  }
  EXPECT_THAT(std::string(Message(status)), HasSubstr(why));
}

TEST_P(LinkTest, AnotherAssignmentIsAnotherLink) {
  OpenResult expected;
  OpenResult dialled;
  LinkKey old = Key();
  old.stamp = Stamp(2);
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kPatience),
                    expected.Done());
  dialler_->Dial({listener_->address()}, old, kSecret, at_dialler_, With({}),
                 Deadline::After(kShort), dialled.Done());
  EXPECT_EQ(dialled.Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(expected.calls(), 0);
}

TEST_P(LinkTest, DialOfNobodyNamesTheAddress) {
  OpenResult dialled;
  const MonoTime started = Now();
  dialler_->Dial({GetParam().nobody}, Key(), kSecret, at_dialler_, With({}),
                 Deadline::After(kShort), dialled.Done());
  const Status status = dialled.Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr(Shown(GetParam().nobody)));
  EXPECT_GE(Now() - started, kShort);
}

TEST_P(LinkTest, DialWithoutAddresses) {
  OpenResult dialled;
  dialler_->Dial({}, Key(), kSecret, at_dialler_, With({}), Deadline::After(kPatience),
                 dialled.Done());
  EXPECT_EQ(dialled.Wait().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(LinkTest, ExpectEndsAtItsDeadline) {
  OpenResult expected;
  const MonoTime started = Now();
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kShort),
                    expected.Done());
  const Status status = expected.Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_GE(Now() - started, kShort);
  // And is free for another one.
  OpenResult again;
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kShort), again.Done());
  EXPECT_EQ(again.Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(LinkTest, SecondExpectOfAKey) {
  OpenResult first;
  OpenResult second;
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kPatience),
                    first.Done());
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kPatience),
                    second.Done());
  EXPECT_EQ(second.Wait().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(first.calls(), 0);
  listener_->Cancel(Key());
  EXPECT_EQ(first.Wait().status().code(), absl::StatusCode::kCancelled);
}

TEST_P(LinkTest, DialGoesOnAtANewAddress) {
  OpenResult expected, dialled;
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kPatience),
                    expected.Done());
  dialler_->Dial({GetParam().nobody}, Key(), kSecret, at_dialler_, With({}),
                 Deadline::After(kPatience), dialled.Done());
  dialler_->Readdress(Key(), {listener_->address()});
  EXPECT_TRUE(dialled.Wait().ok()) << dialled.Wait().status();
  EXPECT_TRUE(expected.Wait().ok()) << expected.Wait().status();
}

TEST_P(LinkTest, CancelOfADial) {
  OpenResult dialled;
  dialler_->Dial({GetParam().nobody}, Key(), kSecret, at_dialler_, With({}),
                 Deadline::After(kPatience), dialled.Done());
  dialler_->Cancel(Key());
  EXPECT_EQ(dialled.Wait().status().code(), absl::StatusCode::kCancelled);
  dialler_->Cancel(Key());  // harmless
}

TEST_P(LinkTest, CancelLeavesOpenLinks) {
  Open();
  listener_->Cancel(Key());
  dialler_->Cancel(Key());
  SendLedger sends;
  const std::string text = "still there";
  dialler_link_->Send(Lane::kBulk, BodyOf(text), sends.Expect());
  EXPECT_TRUE(at_listener_->WaitForFrames(1));
  EXPECT_TRUE(sends.WaitForAll(1));
}

TEST_P(LinkTest, SenselessOptionsAreRefused) {
  LinkOptions no_credits;
  no_credits.credits = 0;
  LinkOptions impatient;
  impatient.peer_timeout = absl::Milliseconds(1);
  for (const LinkOptions& options : {no_credits, impatient}) {
    OpenResult expected;
    OpenResult dialled;
    listener_->Expect(Key(), kSecret, at_listener_, With(options), Deadline::After(kPatience),
                      expected.Done());
    dialler_->Dial({listener_->address()}, Key(), kSecret, at_dialler_, With(options),
                   Deadline::After(kPatience), dialled.Done());
    EXPECT_EQ(expected.Wait().status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(dialled.Wait().status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(LinkTest, ManyLinksBetweenTwoTransports) {
  constexpr uint32_t kLinks = 8;
  std::vector<OpenResult> expected(kLinks);
  std::vector<OpenResult> dialled(kLinks);
  std::vector<std::shared_ptr<RecordingHandler>> handlers;
  for (uint32_t i = 0; i < kLinks; ++i) {
    handlers.push_back(std::make_shared<RecordingHandler>());
    listener_->Expect(Key(i), kSecret, handlers[i], {}, Deadline::After(kPatience),
                      expected[i].Done());
    dialler_->Dial({listener_->address()}, Key(i), kSecret, std::make_shared<RecordingHandler>(),
                   {}, Deadline::After(kPatience), dialled[i].Done());
  }
  SendLedger sends;
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < kLinks; ++i) texts.push_back(Pattern(i, 100));
  std::vector<std::shared_ptr<Link>> links;
  for (uint32_t i = 0; i < kLinks; ++i) {
    const auto link = dialled[i].Wait();
    ASSERT_TRUE(link.ok()) << link.status();
    links.push_back(*link);
    links.back()->Send(Lane::kBulk, BodyOf(texts[i]), sends.Expect());
  }
  for (uint32_t i = 0; i < kLinks; ++i) {
    ASSERT_TRUE(handlers[i]->WaitForFrames(1));
    EXPECT_EQ(handlers[i]->frames()[0].payload, texts[i]);
  }
  EXPECT_TRUE(sends.WaitForAll(kLinks));
}

}  // namespace
}  // namespace longhaul::transport
