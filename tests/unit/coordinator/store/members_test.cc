#include "coordinator/store/members.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/hash.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const absl::Time kUntil = kNow + absl::Hours(1);
constexpr absl::StatusCode kUnauthenticated = absl::StatusCode::kUnauthenticated;

class MembersTest : public ::testing::Test {
 protected:
  MembersTest() {
    EXPECT_TRUE(Store::Open(folder_.path()).ok());
    Open();
  }
  void Open() { members_ = Members::Open(folder_.path(), &journal_).value(); }
  std::string Token(Role role, int64_t uses, absl::Time until = kUntil) {
    const JoinToken token = NewJoinToken(role, std::string(64, 'a'));
    EXPECT_TRUE(members_->AddToken(token, uses, until, kNow).ok());
    return token.secret;
  }
  StatusOr<Member> Join(const std::string& secret, const std::string& name, const std::string& key,
                        absl::Time now = kNow) {
    return members_->Join(secret, {Role::kUser, name, "", key}, now, kUntil);
  }
  StatusOr<Member> JoinWorker(const std::string& secret, const std::string& id,
                              const std::string& key, absl::Time now = kNow) {
    return members_->Join(secret, {Role::kWorker, "w", id, key}, now, kUntil);
  }

  testing::TempDir folder_;
  Journal journal_;
  std::unique_ptr<Members> members_;
};

TEST_F(MembersTest, ATokenIsUsedAsOftenAsItMay) {
  const std::string secret = Token(Role::kUser, 2);
  EXPECT_EQ(Join(secret, "ann", "1")->name, "ann");
  // The same key again, as after an answer that did not arrive, is the same member and no use.
  EXPECT_EQ(Join(secret, "ann", "1")->name, "ann");
  EXPECT_EQ(Join(secret, "ann", "2")->name, "ann-2");
  EXPECT_EQ(Join(secret, "ann", "3").status().code(), kUnauthenticated);
  EXPECT_EQ(Join(secret, "ann", "1")->name, "ann");
  EXPECT_EQ(Join(std::string(48, '0'), "ann", "4").status().code(), kUnauthenticated);
  Open();  // as a coordinator that starts again
  EXPECT_EQ(Join(secret, "ann", "3").status().code(), kUnauthenticated);
  EXPECT_EQ(members_->List().size(), 2u);
}

class GroupTokens : public MembersTest {
 protected:
  std::string GroupToken(uint32_t most, absl::Duration life = absl::Hours(24 * 365)) {
    const JoinToken token = NewJoinToken(Role::kWorker, std::string(64, 'a'));
    EXPECT_TRUE(
        members_->AddToken(token, kAnyNumber, kNow + life, kNow, nullptr, {}, nullptr, most).ok());
    return token.secret;
  }
  // Until `kNow` and so many minutes later.
  static absl::Time After(int64_t minutes) { return kNow + absl::Minutes(minutes); }
};

TEST_F(GroupTokens, ATokenHasSoManyMembersAtATime) {
  const std::string secret = GroupToken(2);
  ASSERT_TRUE(JoinWorker(secret, "one", "1").ok());
  ASSERT_TRUE(JoinWorker(secret, "two", "2").ok());
  const Status full = JoinWorker(secret, "three", "3").status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("is for 2 members at a time"));
  // Who is a member may join again, as after an answer that was lost.
  EXPECT_TRUE(JoinWorker(secret, "two", "2").ok());
  Open();  // as a coordinator that starts again
  EXPECT_EQ(JoinWorker(secret, "three", "3").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(GroupTokens, WhoIsGoneMakesRoom) {
  const std::string secret = GroupToken(2);
  const auto join = [&](const std::string& id, absl::Time now) {
    return members_->Join(secret, {Role::kWorker, "w", id, "key of " + id}, now,
                          now + absl::Hours(700));
  };
  const std::string one = join("one", kNow)->name;
  ASSERT_TRUE(join("two", kNow).ok());
  // The first one renews its certificate, the second one is gone.
  EXPECT_EQ(members_->LifeFor(one, absl::Hours(700)), kGroupMemberLife);
  ASSERT_TRUE(members_->Renew(one, After(100)).ok());
  EXPECT_FALSE(join("three", After(59)).ok());
  EXPECT_TRUE(join("three", After(60)).ok());
  // Back too late, with its old key: its room is taken.
  EXPECT_FALSE(join("two", After(61)).ok());
  ASSERT_TRUE(members_->Revoke(one, After(61)).ok());
  EXPECT_TRUE(join("two", After(61)).ok());
}

TEST_F(GroupTokens, OnlyTheirMembersHaveShortCertificates) {
  const std::string usual = JoinWorker(Token(Role::kWorker, 1), "one", "1")->name;
  EXPECT_EQ(members_->LifeFor(usual, absl::Hours(700)), absl::Hours(700));
  const std::string of_group = JoinWorker(GroupToken(1), "two", "2")->name;
  EXPECT_EQ(members_->LifeFor(of_group, absl::Minutes(1)), absl::Minutes(1));
  for (const v1::MemberStatus& member : members_->List()) {
    const absl::Time until = absl::FromUnixMillis(member.until_unix_ms());
    EXPECT_EQ(until, member.name() == of_group ? kNow + kGroupMemberLife : kUntil) << member.name();
  }
}

TEST_F(GroupTokens, TheyMayLastLongerButNotForEver) {
  const JoinToken token = NewJoinToken(Role::kWorker, std::string(64, 'a'));
  const auto add = [&](absl::Duration life, uint32_t most) {
    return members_->AddToken(token, kAnyNumber, kNow + life, kNow, nullptr, {}, nullptr, most);
  };
  EXPECT_EQ(add(kLongestGroupTokenLife + absl::Seconds(1), 5).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(add(kLongestTokenLife + absl::Seconds(1), 0).message()),
              HasSubstr("--members"));
  EXPECT_TRUE(add(kLongestGroupTokenLife, 5).ok());
}

TEST_F(GroupTokens, TokensAreListedAndRevoked) {
  const std::string group = GroupToken(3), once = Token(Role::kUser, 2);
  ASSERT_TRUE(JoinWorker(group, "one", "1").ok());
  const std::vector<v1::TokenStatus> tokens = members_->ListTokens(kNow).value();
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].role(), "user") << "the first to end";
  EXPECT_EQ(tokens[0].uses_left(), 2);
  EXPECT_EQ(tokens[1].members_most(), 3u);
  EXPECT_EQ(tokens[1].members(), 1u);
  EXPECT_EQ(tokens[1].id(), Sha256Hex(group).substr(0, kTokenIdDigits));
  EXPECT_TRUE(members_->RevokeToken(tokens[1].id(), kNow).ok());
  EXPECT_EQ(JoinWorker(group, "two", "2").status().code(), kUnauthenticated);
  EXPECT_EQ(members_->List().size(), 1u) << "who has joined stays";
  EXPECT_EQ(members_->RevokeToken(tokens[1].id(), kNow).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(members_->RevokeToken("%", kNow).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Join(once, "ann", "9").ok()) << "another token is as it was";
  EXPECT_TRUE(members_->ListTokens(kUntil).value().empty());
}

// Nobody got the first one, so it must not stay.
TEST_F(MembersTest, ARepeatedCallReplacesItsToken) {
  const Once once{.owner = "ann", .id = "0123456789abcdef", .asked_sha256 = "of the request"};
  const auto add = [&](const JoinToken& token, const Once& call, bool* repeated) {
    return members_->AddToken(token, 2, kUntil, kNow, nullptr, call, repeated);
  };
  const JoinToken first = NewJoinToken(Role::kUser, std::string(64, 'a'));
  const JoinToken second = NewJoinToken(Role::kUser, std::string(64, 'a'));
  bool repeated = true;
  ASSERT_TRUE(add(first, once, &repeated).ok());
  EXPECT_FALSE(repeated);
  Open();  // as a coordinator that starts again
  ASSERT_TRUE(add(second, once, &repeated).ok());
  EXPECT_TRUE(repeated);
  EXPECT_EQ(*members_->TokenUntil(first.secret), std::nullopt);
  EXPECT_EQ(**members_->TokenUntil(second.secret), kUntil);
  // Another member's id and another request are other calls.
  Once other = once;
  other.owner = "bob";
  ASSERT_TRUE(add(first, other, &repeated).ok());
  EXPECT_FALSE(repeated);
  other = once;
  other.asked_sha256 = "another";
  const JoinToken third = NewJoinToken(Role::kUser, std::string(64, 'a'));
  EXPECT_EQ(add(third, other, nullptr).code(), absl::StatusCode::kInvalidArgument);
  // Whoever uses the token has got the answer.
  ASSERT_TRUE(Join(second.secret, "ann", "1").ok());
  EXPECT_EQ(add(third, once, nullptr).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*members_->TokenUntil(third.secret), std::nullopt);
  EXPECT_EQ(**members_->TokenUntil(second.secret), kUntil);
}

TEST_F(MembersTest, ATokenHasItsTimeAndRole) {
  const std::string secret = Token(Role::kUser, 5);
  EXPECT_EQ(Join(secret, "late", "1", kUntil).status().code(), kUnauthenticated);
  EXPECT_EQ(JoinWorker(secret, "id", "1").status().code(), absl::StatusCode::kPermissionDenied);
  const std::string any = Token(Role::kAdmin, kAnyNumber, kNow + kLongestTokenLife);
  const absl::Time late = kNow + kLongestTokenLife - absl::Seconds(1);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Join(any, "some", std::to_string(i), late).ok());
  EXPECT_TRUE(JoinWorker(any, "id", "x").ok());
  EXPECT_EQ(Join(any, "some", "9", kNow + kLongestTokenLife).status().code(), kUnauthenticated);
}

TEST_F(MembersTest, EveryTokenEnds) {
  const JoinToken token = NewJoinToken(Role::kUser, std::string(64, 'a'));
  for (const absl::Time until :
       {absl::InfiniteFuture(), kNow + kLongestTokenLife + absl::Seconds(1), kNow}) {
    EXPECT_EQ(members_->AddToken(token, 1, until, kNow).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(*members_->TokenUntil(token.secret), std::nullopt);
  ASSERT_TRUE(members_->AddToken(token, 1, kUntil, kNow).ok());
  EXPECT_EQ(**members_->TokenUntil(token.secret), kUntil);
  ASSERT_TRUE(Join(token.secret, "ann", "1").ok());
  EXPECT_EQ(*members_->TokenUntil(token.secret), std::nullopt);  // it is used up
}

TEST_F(MembersTest, AnIdOfAWorkerIsOnesOwn) {
  const std::string secret = Token(Role::kWorker, 9);
  EXPECT_EQ(JoinWorker(secret, "id", "1")->worker_id, "id");
  const auto thief = JoinWorker(secret, "id", "2");
  EXPECT_EQ(thief.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(thief.status().message()), HasSubstr("longhaul members revoke w"));
  EXPECT_TRUE(members_->Check({"w", Role::kWorker, "id"}, "1").ok());
  EXPECT_EQ(members_->Check({"w", Role::kWorker, "other"}, "1").code(), kUnauthenticated);
  EXPECT_EQ(members_->Check({"w", Role::kAdmin, ""}, "1").code(), kUnauthenticated);
  // When it is sent away, another may have the id, and never the name.
  ASSERT_TRUE(members_->Revoke("w", kNow).ok());
  EXPECT_EQ(JoinWorker(secret, "id", "2")->name, "w-2");
  EXPECT_EQ(members_->Check({"w", Role::kWorker, "id"}, "1").code(), kUnauthenticated);
}

// As with a certificate that somebody signed who has a copy of the authority.
TEST_F(MembersTest, AKeyIsPartOfAMember) {
  const std::string secret = Token(Role::kWorker, 9);
  ASSERT_TRUE(JoinWorker(secret, "id", "1").ok());
  const Member member{"w", Role::kWorker, "id"};
  const Status other = members_->Check(member, "2");
  EXPECT_EQ(other.code(), kUnauthenticated);
  EXPECT_THAT(std::string(other.message()), HasSubstr("another key"));
  ASSERT_TRUE(members_->Renew("w", kUntil + absl::Hours(1)).ok());
  Open();
  EXPECT_TRUE(members_->Check(member, "1").ok());
  EXPECT_FALSE(members_->Check(member, "").ok());
  // One that joins again when its certificate has ended may have lost the key.
  ASSERT_TRUE(JoinWorker(Token(Role::kWorker, 1, kUntil + absl::Hours(3)), "id", "2",
                         kUntil + absl::Hours(2))
                  .ok());
  EXPECT_TRUE(members_->Check(member, "2").ok());
  EXPECT_FALSE(members_->Check(member, "1").ok());
}

TEST_F(MembersTest, WhoIsSentAwayStaysAway) {
  const std::string secret = Token(Role::kUser, 9);
  ASSERT_TRUE(Join(secret, "bob", "1").ok());
  ASSERT_TRUE(members_->Renew("bob", kUntil + absl::Hours(1)).ok());
  EXPECT_EQ(members_->List()[0].until_unix_ms(), absl::ToUnixMillis(kUntil + absl::Hours(1)));
  ASSERT_TRUE(members_->Revoke("bob", kNow).ok());
  EXPECT_EQ(members_->Revoke("bob", kNow).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(members_->Revoke("eve", kNow).code(), absl::StatusCode::kNotFound);
  Open();
  EXPECT_THAT(std::string(members_->Check({"bob", Role::kUser, ""}, "1").message()),
              HasSubstr("was revoked"));
  // Not with the same key, whatever he calls himself, and not as another role.
  const auto same_key = Join(secret, "bert", "1");
  EXPECT_EQ(same_key.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(same_key.status().message()), HasSubstr("no key becomes a member twice"));
  EXPECT_FALSE(JoinWorker(Token(Role::kWorker, 1), "id", "1").ok());
  EXPECT_EQ(Join(secret, "bob", "2")->name, "bob-2");
}

// The store forgets a member that ended long ago, but for its name and key, which nobody can join
// with again.
TEST_F(MembersTest, WhoEndedLongAgoIsForgottenButForNameAndKey) {
  const std::string secret = Token(Role::kUser, 9, kNow + absl::Hours(100));
  ASSERT_TRUE(Join(secret, "revoked", "1").ok());
  ASSERT_TRUE(Join(secret, "expired", "2").ok());
  ASSERT_TRUE(Join(secret, "member", "3").ok());
  ASSERT_TRUE(members_->Revoke("revoked", kNow).ok());
  ASSERT_TRUE(members_->Renew("member", kNow + absl::Hours(99)).ok());
  EXPECT_EQ(*members_->Forget(kNow), 0u);
  EXPECT_EQ(*members_->Forget(kNow + absl::Seconds(1)), 1u);
  EXPECT_EQ(*members_->Forget(kUntil + absl::Seconds(1)), 1u);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(members_->List().size(), 1u);
    EXPECT_EQ(members_->List()[0].name(), "member");
    EXPECT_THAT(std::string(members_->Check({"revoked", Role::kUser, ""}, "1").message()),
                HasSubstr("is no member"));
    for (const char* key : {"1", "2"}) {
      EXPECT_EQ(Join(secret, "new", key).status().code(), absl::StatusCode::kPermissionDenied);
    }
    Open();
  }
  EXPECT_EQ(Join(secret, "revoked", "4")->name, "revoked-2");
  EXPECT_EQ(Join(secret, "expired", "5")->name, "expired-2");
}

TEST_F(MembersTest, NothingOfAnAuthorityOutlivesIt) {
  const absl::Time end = kNow + absl::Minutes(10);
  const std::string secret = Token(Role::kWorker, 9);
  ASSERT_TRUE(JoinWorker(secret, "id", "1").ok());
  ASSERT_TRUE(members_->EndAllBy(end).ok());
  EXPECT_EQ(members_->List()[0].until_unix_ms(), absl::ToUnixMillis(end));
  EXPECT_EQ(JoinWorker(secret, "other", "2", end).status().code(), kUnauthenticated);
  Open();
  // Its id is free again for whoever has a token of the next authority.
  const JoinToken token = NewJoinToken(Role::kWorker, std::string(64, 'b'));
  ASSERT_TRUE(members_->AddToken(token, 1, kUntil, kNow).ok());
  EXPECT_EQ(JoinWorker(token.secret, "id", "2", end)->name, "w");
}

}  // namespace
}  // namespace longhaul::coordinator
