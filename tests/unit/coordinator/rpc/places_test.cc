// What members may have under way, and when an upload is given up: pure.
#include "coordinator/rpc/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/rpc/upload_pace.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Caller CallerNamed(const std::string& name, Role role = Role::kUser) {
  return {.member = Member{.name = name, .role = role}};
}

TEST(PlacesTest, AMembersShareIsItsOwn) {
  Places places({.fetches = {.of_member = 2, .in_all = 100}});
  std::vector<Place> taken;
  for (int i = 0; i < 2; ++i) taken.push_back(*places.Take(CallerNamed("bob"), Use::kFetch));
  const Status refused = places.Take(CallerNamed("bob"), Use::kFetch).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(refused)),
              AllOf(HasSubstr("bob has 2 blobs"), HasSubstr("may have 2"), HasSubstr("cancel")));
  EXPECT_TRUE(places.Take(CallerNamed("bob"), Use::kFollower).ok());  // another use
  EXPECT_TRUE(places.Take(CallerNamed("eve"), Use::kFetch).ok());
  taken.pop_back();
  EXPECT_TRUE(places.Take(CallerNamed("bob"), Use::kFetch).ok());
  taken.clear();
  EXPECT_EQ(places.Count(Use::kFetch), 0u);
}

TEST(PlacesTest, TheLastOnesAreForAdmins) {
  Places places({.uploads = {.of_member = 100, .in_all = 20}});
  std::vector<Place> taken;
  while (true) {
    StatusOr<Place> place = places.Take(CallerNamed("bob"), Use::kUpload);
    if (!place.ok()) break;
    taken.push_back(*std::move(place));
  }
  EXPECT_EQ(taken.size(), 20 - kKeptForAdmins);
  EXPECT_FALSE(places.Take(CallerNamed("eve"), Use::kUpload).ok());
  for (size_t i = 0; i < kKeptForAdmins; ++i) {
    StatusOr<Place> place = places.Take(CallerNamed("ann", Role::kAdmin), Use::kUpload);
    ASSERT_TRUE(place.ok()) << place.status();
    taken.push_back(*std::move(place));
  }
  const Status refused = places.Take(CallerNamed("ann", Role::kAdmin), Use::kUpload).status();
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("there are 20 uploads"));
}

TEST(PlacesTest, APlaceOutlivesItsPlaces) {
  Place place;
  {
    Places places({});
    place = *places.Take(Caller(), Use::kCall);
    EXPECT_EQ(places.Count(Use::kCall), 1u);
  }
  place = Place();
}

TEST(UploadPaceTest, WhoDripsIsGivenUpAsWhoIsSilent) {
  constexpr absl::Duration kIdle = absl::Seconds(60);
  const MonoTime begin = MonoTime() + absl::Hours(1);
  UploadPace pace(begin, kIdle);
  EXPECT_EQ(pace.ends(), begin + kIdle);
  for (int second = 1; second < 60; ++second) pace.Came(1, begin + absl::Seconds(second));
  EXPECT_EQ(pace.ends(), begin + kIdle);
  pace.Came(kLeastUploadBytes, begin + absl::Seconds(50));
  EXPECT_EQ(pace.ends(), begin + absl::Seconds(50) + kIdle);
  // Slow, but steadily more than a drip.
  MonoTime now = begin + absl::Seconds(50);
  for (int i = 0; i < 100; ++i) {
    now += absl::Seconds(10);
    EXPECT_LT(now, pace.ends());
    pace.Came(kLeastUploadBytes / 4, now);
  }
}

}  // namespace
}  // namespace longhaul::coordinator
