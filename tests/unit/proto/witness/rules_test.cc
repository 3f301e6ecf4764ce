#include "proto/witness/rules.h"

#include <gmock/gmock.h>

#include "proto/witness/wire.h"

namespace longhaul::witness {
namespace {

using ::testing::HasSubstr;

class RulesTest : public ::testing::Test {
 protected:
  Decision Ask(const Request& request, bool heard = false) {
    // As a coordinator sends it.
    const StatusOr<Request> sent = FromProto(ToProto(request));
    EXPECT_TRUE(sent.ok()) << sent.status();
    return Decide(*sent, heard, &record_);
  }
  const Tenure old_{"old"}, new_{"new"};
  Record record_{.id = "w",
                 .term = 3,
                 .tenure = old_,
                 .seat = "a",
                 .in_sync = {"a", "b"},
                 .ask = 2,
                 .seen = 10};
};

TEST_F(RulesTest, AGreaterTermOfASeatInSyncIsElected) {
  EXPECT_TRUE(Ask(Elect{4, new_, "b", 10}).granted);
  EXPECT_EQ(record_.term, 4u);
  EXPECT_EQ(record_.tenure, new_);
  EXPECT_EQ(record_.seat, "b");
  EXPECT_EQ(record_.ask, 0u);
  EXPECT_TRUE(Ask(Elect{4, new_, "b", 10}).granted);  // its answer was lost
  EXPECT_FALSE(Ask(Elect{4, old_, "a", 10}).granted);
}

TEST_F(RulesTest, OthersAreNotElected) {
  const Record before = record_;
  EXPECT_THAT(Ask(Elect{3, new_, "b", 10}).why, HasSubstr("with term 3, and was asked for term 3"));
  EXPECT_THAT(Ask(Elect{4, new_, "c", 10}).why, HasSubstr("may lack changes"));
  EXPECT_THAT(Ask(Elect{4, new_, "b", 9}).why, HasSubstr("an older copy of them was put back"));
  EXPECT_THAT(Ask(Elect{4, new_, "b", 10}, /*heard=*/true).why,
              HasSubstr("hears the coordinator a"));
  EXPECT_EQ(record_, before);
  // The seat that led may begin anew at once.
  EXPECT_TRUE(Ask(Elect{4, new_, "a", 10}, /*heard=*/true).granted);
}

TEST_F(RulesTest, OnlyTheLeaderNamesTheSeatsInSync) {
  EXPECT_FALSE(Ask(SetInSync{3, new_, {"a"}, 3}).granted);
  EXPECT_FALSE(Ask(SetInSync{2, old_, {"a"}, 3}).granted);
  EXPECT_FALSE(Ask(SetInSync{3, old_, {"b"}, 3}).granted);
  EXPECT_TRUE(Ask(SetInSync{3, old_, {"a"}, 3}).granted);
  EXPECT_EQ(record_.in_sync, std::vector<std::string>{"a"});
  EXPECT_TRUE(Ask(SetInSync{3, old_, {"a"}, 3}).granted);
  // Late repetitions.
  EXPECT_FALSE(Ask(SetInSync{3, old_, {"a", "b"}, 2}).granted);
  EXPECT_FALSE(Ask(SetInSync{3, old_, {"a", "b"}, 3}).granted);
  EXPECT_EQ(record_.in_sync, std::vector<std::string>{"a"});
}

TEST_F(RulesTest, ABeatSaysHowFarTheLeaderIs) {
  EXPECT_TRUE(Ask(Beat{3, old_, "a", 20}).granted);
  EXPECT_EQ(record_.seen, 20u);
  EXPECT_TRUE(Ask(Beat{3, old_, "a", 5}).granted);
  EXPECT_EQ(record_.seen, 20u);
  EXPECT_FALSE(Ask(Beat{2, old_, "a", 30}).granted);
  EXPECT_EQ(record_.seen, 20u);
  // One that was elected while the witness was away asks to be elected, too.
  EXPECT_FALSE(Ask(Beat{5, new_, "b", 21}).granted);
  EXPECT_EQ(record_.seat, "a");
}

TEST_F(RulesTest, ASeatThatTheOtherOneElectedIsAlone) {
  // The leader hands over, so nobody waits for its silence.
  EXPECT_TRUE(Ask(Elect{4, new_, "b", 10, "a"}, /*heard=*/true).granted);
  EXPECT_EQ(record_.in_sync, std::vector<std::string>{"b"});
  EXPECT_EQ(record_.seat, "b");
  // It has everything that its voter has, and the voter was in sync.
  EXPECT_TRUE(Ask(Elect{6, old_, "a", 10, "b"}).granted);
  EXPECT_EQ(record_.in_sync, std::vector<std::string>{"a"});
  // Said again, it undoes nothing that came since.
  EXPECT_TRUE(Ask(SetInSync{6, old_, {"a", "b"}, 1}).granted);
  EXPECT_TRUE(Ask(Elect{6, old_, "a", 10, "b"}).granted);
  EXPECT_EQ(record_.in_sync, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(Ask(Elect{7, new_, "c", 10, "d"}).granted);
}

TEST_F(RulesTest, AWitnessIsIntroducedOnce) {
  const Record given = record_;
  EXPECT_FALSE(Ask(Introduce{given}).granted);
  record_ = Record{.id = "fresh"};
  EXPECT_FALSE(Ask(Elect{9, new_, "a", 10}).granted);
  EXPECT_FALSE(Ask(Beat{9, new_, "a", 10}).granted);
  EXPECT_FALSE(Ask(Introduce{Record{.term = 3}}).granted);
  EXPECT_TRUE(Ask(Introduce{given}).granted);
  EXPECT_EQ(record_.id, "fresh");
  EXPECT_EQ(record_.in_sync, given.in_sync);
}

TEST_F(RulesTest, TheRecordIsReadAsItWasWritten) {
  EXPECT_EQ(*ParseRecord(ToJson(record_)), record_);
  EXPECT_EQ(FromProto(ToProto(record_)), record_);
  for (const char* text :
       {"", "[]", R"({"id": "w"})",
        R"({"id":"w","term":1,"tenure":"xy","seat":"","in_sync":[],"ask":0,"seen":0})",
        R"({"id":"","term":1,"tenure":"","seat":"","in_sync":[],"ask":0,"seen":0})",
        R"({"id":"w","term":1,"tenure":"","seat":"","in_sync":["b","a"],"ask":0,"seen":0})"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseRecord(text).status())) << text;
  }
}

}  // namespace
}  // namespace longhaul::witness
