#include "base/words.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/nearest.h"

namespace longhaul {
namespace {

TEST(WordOf, FollowsTheOrderOfTheEnumAndSurvivesStrangers) {
  enum class Colour : uint8_t { kRed, kGreen };
  const auto word = [](Colour colour) { return WordOf(colour, {"red", "green"}, "none"); };
  EXPECT_EQ(word(Colour::kRed), "red");
  EXPECT_EQ(word(Colour::kGreen), "green");
  EXPECT_EQ(word(static_cast<Colour>(2)), "none");
  EXPECT_EQ(WordOf(static_cast<Colour>(255), {"red", "green"}), "?");
  static_assert(IsValueOfEnum<Colour::kGreen>() && !IsValueOfEnum<static_cast<Colour>(2)>());
}

TEST(DidYouMean, FindsTheNearestWordWhateverTheCase) {
  const std::vector<std::string> known = {"tah", "fixed", "gauss", "local-sgd"};
  EXPECT_EQ(DidYouMean("tha", known), "; did you mean 'tah'?");  // a swap is one slip
  EXPECT_EQ(DidYouMean("FIXD", known), "; did you mean 'fixed'?");
  EXPECT_EQ(DidYouMean("localsdg", known), "; did you mean 'local-sgd'?");
  EXPECT_EQ(DidYouMean("gzip", known), "");  // more than a third of its letters
  EXPECT_EQ(DidYouMean(std::string(65, 't'), known), "");
  EXPECT_EQ(DidYouMean("tah", std::vector<std::string>()), "");
}

}  // namespace
}  // namespace longhaul
