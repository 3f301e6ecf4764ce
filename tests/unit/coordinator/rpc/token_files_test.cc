#include "coordinator/rpc/token_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "base/file.h"
#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

class TokenFilesTest : public ::testing::Test {
 protected:
  std::optional<std::string> Provide(absl::Time now) {
    return ProvideToken(file_, authorities_, members_.get(), now).value();
  }
  JoinToken Token() const {
    std::string text = ReadFile(file_.path).value();
    text.pop_back();
    return ParseJoinToken(text).value();
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  const testing::TempDir folder_;
  const std::unique_ptr<Store> store_ = Store::Open(folder_.path()).value();
  const std::unique_ptr<Members> members_ =
      Members::Open(folder_.path(), &store_->journal()).value();
  Authorities authorities_{
      .present = Authority::Make(now_).value(), .old = std::nullopt, .old_until = {}};
  const TokenFile file_{
      .path = folder_.path() + "/token", .role = Role::kWorker, .what = "the join token"};
};

// A copy of the file is good for a while, and the file itself for ever.
TEST_F(TokenFilesTest, TheFileHasAGoodTokenAlways) {
  EXPECT_THAT(Provide(now_), Optional(HasSubstr("made the join token")));
  struct stat info {};
  ASSERT_EQ(::stat(file_.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const JoinToken first = Token();
  EXPECT_EQ(first.fingerprint, authorities_.present.fingerprint());
  EXPECT_EQ(**members_->TokenUntil(first.secret), now_ + kLongestTokenLife);
  EXPECT_EQ(Provide(now_ + kLongestTokenLife * 0.6), std::nullopt);
  EXPECT_EQ(Token(), first);
  EXPECT_THAT(Provide(now_ + kLongestTokenLife * 0.7), Optional(HasSubstr("renewed")));
  const JoinToken second = Token();
  EXPECT_NE(second.secret, first.secret);
  // Whoever has a copy of the first one has it for its own time yet.
  EXPECT_TRUE((*members_->TokenUntil(first.secret)).has_value());
}

TEST_F(TokenFilesTest, FollowsARotation) {
  (void)Provide(now_);
  const JoinToken before = Token();
  const absl::Time end = now_ + absl::Hours(24);
  ASSERT_TRUE(members_->EndAllBy(end).ok());
  authorities_ = Rotate(authorities_, now_, end).value();
  // It is good as long as the old authority is shown.
  EXPECT_EQ(Provide(now_), std::nullopt);
  EXPECT_EQ(Token(), before);
  EXPECT_EQ(Provide(end - absl::Hours(1)), std::nullopt);
  EXPECT_THAT(Provide(end), Optional(HasSubstr("renewed")));
  EXPECT_EQ(Token().fingerprint, authorities_.present.fingerprint());
}

TEST_F(TokenFilesTest, AFileOfAnotherKindStays) {
  const auto refused = [&](const std::string& text) {
    EXPECT_TRUE(WriteFileAtomic(file_.path, text, 0600).ok());
    const auto provided = ProvideToken(file_, authorities_, members_.get(), now_);
    EXPECT_EQ(ReadFile(file_.path).value(), text);
    return std::string(Message(provided.status()));
  };
  EXPECT_THAT(refused("a-token-of-sixteen-characters\n"), HasSubstr("without encryption"));
  const std::string& own = authorities_.present.fingerprint();
  EXPECT_THAT(refused(ToString(NewJoinToken(Role::kAdmin, own)) + "\n"),
              HasSubstr("for the role admin, not worker"));
  EXPECT_THAT(refused(ToString(NewJoinToken(Role::kWorker, std::string(64, 'a'))) + "\n"),
              HasSubstr("of another authority"));
  // One that the store does not know, as after a restore, is replaced.
  ASSERT_TRUE(
      WriteFileAtomic(file_.path, ToString(NewJoinToken(Role::kWorker, own)) + "\n", 0600).ok());
  EXPECT_THAT(Provide(now_), Optional(HasSubstr("renewed")));
}

}  // namespace
}  // namespace longhaul::coordinator
