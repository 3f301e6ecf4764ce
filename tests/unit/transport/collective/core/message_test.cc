#include "transport/collective/core/message.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "transport/collective/core/id.h"

namespace longhaul::collective::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MessageReaderTest, CutsAStreamThatComesByteByByte) {
  const std::string stream = Encode(MessageKind::kTell, "one") + Encode(MessageKind::kGoodbye, "") +
                             Encode(MessageKind::kEnd, "two");
  MessageReader reader(3);
  std::vector<std::string> got;
  for (const char byte : stream) {
    reader.Feed({&byte, 1});
    const auto message = reader.Next();
    ASSERT_TRUE(message.ok()) << message.status();
    if (*message) got.push_back((*message)->payload);
  }
  EXPECT_THAT(got, ElementsAre("one", "", "two"));
}

TEST(MessageReaderTest, RefusesALengthBeforeThePayloadHasCome) {
  MessageReader reader(3);
  reader.Feed(Encode(MessageKind::kTell, "four").substr(0, 8));
  const auto message = reader.Next();
  EXPECT_TRUE(absl::IsInvalidArgument(message.status()));
  EXPECT_THAT(Message(message.status()), HasSubstr("4 bytes came, expected at most 3"));
}

TEST(MessageReaderTest, RefusesAKindThatNoMessageHas) {
  for (const int kind : {0, 5, 15, 21, 255}) {
    MessageReader reader(100);
    reader.Feed(Encode(static_cast<MessageKind>(kind), "x"));
    EXPECT_TRUE(absl::IsInvalidArgument(reader.Next().status())) << kind;
  }
}

TEST(MessageTest, PayloadsComeBack) {
  const auto join = DecodeJoin(EncodeJoin({std::string(kSecretBytes, 's'), {3, 4}}));
  ASSERT_TRUE(join.ok());
  EXPECT_EQ(join->secret, std::string(kSecretBytes, 's'));
  EXPECT_EQ(join->place.rank, 3u);
  EXPECT_EQ(join->place.size, 4u);
  const auto came = DecodeCame(EncodeCame({7, 5}));
  ASSERT_TRUE(came.ok());
  EXPECT_EQ(came->round, 7u);
  EXPECT_EQ(came->ranks, 5u);
  const std::vector<std::string> words = {"", "a", std::string(1000, 'b')};
  EXPECT_EQ(DecodeTold(EncodeTold(words), 3).value_or(std::vector<std::string>()), words);
  EXPECT_EQ(DecodeRefused(EncodeRefused(absl::InvalidArgumentError("no"))),
            absl::InvalidArgumentError("no"));
  EXPECT_EQ(DecodeRefused(EncodeRefused(absl::AbortedError("over"))), absl::AbortedError("over"));
}

TEST(MessageTest, RefusesPayloadsThatAreNone) {
  EXPECT_FALSE(DecodeJoin("short").ok());
  EXPECT_FALSE(DecodeCame("short").ok());
  EXPECT_FALSE(DecodeRefused("").ok());
  const std::string told = EncodeTold({"a", "b"});
  EXPECT_FALSE(DecodeTold(told, 1).ok());
  EXPECT_FALSE(DecodeTold(told, 3).ok());
  EXPECT_FALSE(DecodeTold(told.substr(0, told.size() - 1), 2).ok());
  EXPECT_FALSE(DecodeTold(std::string("\xff\xff\xff\xff", 4), 1).ok());
}

TEST(RendezvousIdTest, ComesBackAndFitsItsBound) {
  const RendezvousId id = NewRendezvousId();
  const std::string text = FormatId(id);
  EXPECT_LE(text.size(), 100u);
  EXPECT_EQ(text.find(' '), std::string::npos);
  const auto parsed = ParseId(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->socket, id.socket);
  EXPECT_EQ(parsed->secret, id.secret);
}

TEST(RendezvousIdTest, ARefusalDoesNotRepeatTheText) {
  const std::string text = FormatId(NewRendezvousId());
  for (const std::string& bad : {std::string(), text.substr(1), text + "0", "x" + text.substr(1),
                                 std::string(1000, 'a'), text.substr(0, text.size() - 1) + "G"}) {
    const auto parsed = ParseId(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << bad;
    EXPECT_EQ(Message(parsed.status()).find(text.substr(30)), std::string_view::npos);
  }
}

}  // namespace
}  // namespace longhaul::collective::internal
