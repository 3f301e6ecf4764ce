#include "transport/collective/core/roster.h"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

namespace longhaul::collective::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kSecret(kSecretBytes, 's');

class RosterTest : public ::testing::Test {
 protected:
  void Join(uint64_t connection, Place place, const std::string& secret = kSecret) {
    Say(connection, MessageKind::kJoin, EncodeJoin({secret, place}));
  }
  void JoinAll(uint32_t size) {
    for (uint32_t rank = 0; rank < size; ++rank) Join(rank, {rank, size});
    Take();
    heard_.clear();
  }
  void Say(uint64_t connection, MessageKind kind, const std::string& payload = "") {
    roster_.OnMessage(connection, 4000 + static_cast<int64_t>(connection), {kind, payload});
  }
  // What each connection has heard since the last time, but who came.
  void Take() {
    for (const Roster::Output& output : roster_.TakeOutput()) {
      if (output.then_close) closed_.push_back(output.to);
      MessageReader reader(1 << 20);
      reader.Feed(output.bytes);
      for (auto message = reader.Next(); message.ok() && *message; message = reader.Next()) {
        if ((*message)->kind == MessageKind::kCame) {
          came_[output.to] = DecodeCame((*message)->payload)->ranks;
        } else {
          heard_[output.to].push_back(**message);
        }
      }
    }
  }
  std::vector<std::string> Heard(uint64_t connection, MessageKind kind) {
    Take();
    std::vector<std::string> payloads;
    for (const GroupMessage& message : heard_[connection]) {
      EXPECT_EQ(message.kind, kind);
      payloads.push_back(message.payload);
    }
    heard_.erase(connection);
    return payloads;
  }

  Roster roster_{kSecret};
  std::map<uint64_t, std::vector<GroupMessage>> heard_;
  std::map<uint64_t, uint64_t> came_;
  std::vector<uint64_t> closed_;
};

TEST_F(RosterTest, SaysWhoHasJoinedAndWhenAllHave) {
  Join(0, {0, 3});
  Join(2, {2, 3});
  Take();
  EXPECT_EQ(came_[0], 0b101u);
  EXPECT_THAT(heard_, IsEmpty());
  Join(1, {1, 3});
  for (uint64_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Heard(rank, MessageKind::kJoined), ElementsAre("")) << rank;
  }
}

TEST_F(RosterTest, RefusesWithASentence) {
  Join(0, {0, 3});
  Join(10, {1, 3}, std::string(kSecretBytes, 'x'));
  Join(11, {1, 4});
  Join(12, {0, 3});
  Join(13, {3, 3});
  Join(14, {0, kMaxRanks + 1});
  Join(15, {0, 0});
  Take();
  EXPECT_THAT(closed_, ElementsAre(10, 11, 12, 13, 14, 15));
  const auto refusal = [this](uint64_t connection) {
    const auto payloads = Heard(connection, MessageKind::kRefused);
    return payloads.empty() ? "" : std::string(Message(DecodeRefused(payloads[0])));
  };
  EXPECT_THAT(refusal(10), HasSubstr("secret"));
  EXPECT_THAT(refusal(11),
              HasSubstr("rank 1 joins a group of 4 ranks, but those before it one of 3"));
  EXPECT_THAT(refusal(12), HasSubstr("rank 0 has joined already, with process 4000"));
  EXPECT_THAT(refusal(13), HasSubstr("got rank 3 of 3"));
  EXPECT_THAT(refusal(14), HasSubstr("1 to 64 ranks"));
  EXPECT_THAT(refusal(15), HasSubstr("got rank 0 of 0"));
  EXPECT_THAT(heard_, IsEmpty());
}

TEST_F(RosterTest, ClosesOnStrangersWithoutAWord) {
  Say(7, MessageKind::kTell, "hello");
  Say(8, MessageKind::kJoin, "short");
  Say(9, MessageKind::kTold, "");
  Take();
  EXPECT_THAT(closed_, ElementsAre(7, 8, 9));
  EXPECT_THAT(heard_, IsEmpty());
  EXPECT_EQ(roster_.PayloadLimit(7), kJoinBytes);
}

TEST_F(RosterTest, TellsWordsByRankRoundByRound) {
  JoinAll(2);
  Say(0, MessageKind::kTell, "a0");
  Say(0, MessageKind::kTell, "a1");
  EXPECT_THAT(Heard(1, MessageKind::kTold), IsEmpty());
  Say(1, MessageKind::kTell, "b0");
  Say(1, MessageKind::kTell, "b1");
  EXPECT_THAT(Heard(1, MessageKind::kTold),
              ElementsAre(EncodeTold({"a0", "b0"}), EncodeTold({"a1", "b1"})));
}

TEST_F(RosterTest, NamesTheProcessOfALostRank) {
  JoinAll(3);
  roster_.OnClosed(2);
  roster_.OnClosed(1);
  for (const uint64_t rank : {0, 1, 2}) {
    EXPECT_THAT(Heard(rank, MessageKind::kEnded),
                ElementsAre("rank 2 was lost: its process 4002 closed its connection"));
  }
  EXPECT_TRUE(roster_.Over());
}

TEST_F(RosterTest, TheFirstReasonStands) {
  JoinAll(2);
  Say(1, MessageKind::kEnd, "out of\nmemory");
  Say(0, MessageKind::kEnd, "another");
  EXPECT_THAT(Heard(0, MessageKind::kEnded), ElementsAre("rank 1 failed: out of memory"));
  Join(5, {1, 2});
  EXPECT_EQ(DecodeRefused(Heard(5, MessageKind::kRefused).at(0)),
            absl::AbortedError("rank 1 failed: out of memory"));
}

TEST_F(RosterTest, AGoodbyeEndsNothingUnlessSomebodyWaits) {
  JoinAll(3);
  Say(0, MessageKind::kGoodbye);
  roster_.OnClosed(0);
  EXPECT_THAT(Heard(1, MessageKind::kEnded), IsEmpty());
  Say(1, MessageKind::kTell, "word");
  EXPECT_THAT(Heard(1, MessageKind::kEnded),
              ElementsAre("rank 0 left the group before rank 1 did"));
}

TEST_F(RosterTest, AGoodbyeWhileAnotherWaitsEndsTheGroup) {
  JoinAll(2);
  Say(1, MessageKind::kTell, "word");
  Say(0, MessageKind::kGoodbye);
  EXPECT_THAT(Heard(1, MessageKind::kEnded),
              ElementsAre("rank 0 left the group while rank 1 waited for it"));
}

TEST_F(RosterTest, IsOverWhenAllHaveSaidGoodbye) {
  JoinAll(2);
  Say(0, MessageKind::kGoodbye);
  EXPECT_FALSE(roster_.Over());
  Say(1, MessageKind::kGoodbye);
  EXPECT_TRUE(roster_.Over());
}

TEST_F(RosterTest, AMemberThatLeavesOrIsLostBeforeAllHaveJoinedEndsTheGroup) {
  Join(0, {0, 3});
  Join(1, {1, 3});
  Say(1, MessageKind::kGoodbye);
  EXPECT_EQ(Heard(0, MessageKind::kEnded),
            std::vector<std::string>{"rank 1 left before all ranks had joined"});
}

TEST_F(RosterTest, AMemberThatSendsRubbishOrWithoutEndIsDropped) {
  JoinAll(2);
  for (int i = 0; i < 17; ++i) Say(1, MessageKind::kTell, "again");
  Take();
  EXPECT_THAT(closed_, ElementsAre(1));
  EXPECT_THAT(Heard(0, MessageKind::kEnded),
              ElementsAre("rank 1 failed: it sent its rendezvous what no member sends"));
}

}  // namespace
}  // namespace longhaul::collective::internal
