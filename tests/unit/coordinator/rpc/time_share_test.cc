#include "coordinator/rpc/time_share.h"

#include <gmock/gmock.h>

#include <string>

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

MonoTime At(double seconds) {
  return MonoTime::FromNanoseconds(1'000'000'000) + absl::Seconds(seconds);
}

TEST(TimeShareTest, AMemberHasABurstAndThenItsShare) {
  TimeShare share(0.1, absl::Seconds(2));
  EXPECT_TRUE(share.MayAsk("bob", At(0)).ok());
  share.Took("bob", absl::Seconds(2), At(0));
  EXPECT_TRUE(share.MayAsk("bob", At(0)).ok()) << "has taken no more than a burst";
  share.Took("bob", absl::Seconds(1), At(0));
  const Status refused = share.MayAsk("bob", At(0));
  ASSERT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("ask again in 10"));
  EXPECT_TRUE(share.MayAsk("eve", At(0)).ok()) << "others have shares of their own";
  EXPECT_FALSE(share.MayAsk("bob", At(9)).ok());
  EXPECT_TRUE(share.MayAsk("bob", At(10)).ok());
  // The share comes back once, not at each question.
  share.Took("bob", absl::Seconds(1), At(10));
  EXPECT_FALSE(share.MayAsk("bob", At(19)).ok());
  EXPECT_TRUE(share.MayAsk("bob", At(20)).ok());
}

TEST(TimeShareTest, WhoAsksNoMoreStartsAnew) {
  TimeShare share(0.1, absl::Seconds(2));
  share.Took("bob", absl::Seconds(3), At(0));
  share.Took("eve", absl::Seconds(1), At(30));  // forgets bob
  share.Took("bob", absl::Seconds(2), At(30));
  EXPECT_TRUE(share.MayAsk("bob", At(30)).ok());
  share.Took("bob", absl::Seconds(1), At(30));
  EXPECT_FALSE(share.MayAsk("bob", At(30)).ok());
}

}  // namespace
}  // namespace longhaul::coordinator
