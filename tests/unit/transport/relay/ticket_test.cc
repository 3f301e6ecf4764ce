#include "transport/relay/ticket.h"

#include <gmock/gmock.h>

#include <string>

#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::relay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kOwner(kSecretBytes, 's'), kName(kNameBytes, 'n'), kNonce(kNonceBytes, 'o');
constexpr uint64_t kUntil = 1000;

TEST(TicketTest, AWayIsTheSameAsText) {
  const Way way{.address = "203.0.113.7:7071", .ticket = MakeTicket(kOwner, kName, kUntil)};
  const auto parsed = ParseWay(ToString(way));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->address, way.address);
  EXPECT_EQ(parsed->ticket.name, kName);
  EXPECT_EQ(parsed->ticket.until_s, kUntil);
  EXPECT_EQ(parsed->ticket.key, way.ticket.key);
}

TEST(TicketTest, AWayThatIsNoneIsRefusedWithoutItsTicket) {
  const std::string text =
      ToString({.address = "203.0.113.7:7071", .ticket = MakeTicket(kOwner, kName, kUntil)});
  std::string joined = text;
  joined.erase(joined.find('#'), 1);
  for (const std::string& wrong :
       {std::string(), std::string("203.0.113.7:7071"), text + "0", text.substr(0, text.size() - 1),
        text.substr(0, text.size() - 1) + "x", joined}) {
    const auto parsed = ParseWay(wrong);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(Message(parsed.status())), Not(HasSubstr("6e6e6e")));
  }
}

TEST(TicketTest, AnAnswerIsGoodForItsRelayItsNonceAndItsTimeAlone) {
  const Ticket ticket = MakeTicket(kOwner, kName, kUntil);
  const std::string answer = Answer(ticket, Side::kWaiter, kNonce);
  ASSERT_EQ(answer.size(), kAnswerBytes);
  const auto claim = CheckAnswer(kOwner, answer, kNonce, kUntil);
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(claim->name, kName);
  EXPECT_EQ(claim->side, Side::kWaiter);
  EXPECT_FALSE(CheckAnswer(std::string(kSecretBytes, 'x'), answer, kNonce, kUntil).ok());
  EXPECT_FALSE(CheckAnswer(kOwner, answer, std::string(kNonceBytes, 'x'), kUntil).ok());
  EXPECT_FALSE(CheckAnswer(kOwner, answer, kNonce, kUntil + 1).ok());
  EXPECT_FALSE(CheckAnswer(kOwner, answer.substr(1), kNonce, kUntil).ok());
}

// Side, end, name and proof.
TEST(TicketTest, AnAnswerOfWhichABitWasChangedIsRefused) {
  const std::string answer = Answer(MakeTicket(kOwner, kName, kUntil), Side::kDialler, kNonce);
  for (size_t bit = 0; bit < 8 * answer.size(); ++bit) {
    std::string changed = answer;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(CheckAnswer(kOwner, changed, kNonce, 0).ok()) << "bit " << bit;
  }
}

TEST(TicketTest, TheSecretOutlivesTheProcess) {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/relay-secret";
  const auto made = LoadOrMakeSecret(path);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->size(), kSecretBytes);
  EXPECT_EQ(*LoadOrMakeSecret(path), *made);
  ASSERT_TRUE(WriteFileAtomic(path, "short", 0600).ok());
  EXPECT_THAT(std::string(Message(LoadOrMakeSecret(path).status())), HasSubstr("remove it"));
}

}  // namespace
}  // namespace longhaul::relay
