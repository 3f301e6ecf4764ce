#include "coordinator/state/text.h"

#include <gtest/gtest.h>

namespace longhaul::coordinator {
namespace {

TEST(NaturalLess, CountsAsPeopleDo) {
  EXPECT_TRUE(NaturalLess("worker2", "worker10"));
  EXPECT_FALSE(NaturalLess("worker10", "worker2"));
  EXPECT_TRUE(NaturalLess("a", "b"));
  EXPECT_TRUE(NaturalLess("a", "a1"));
  EXPECT_TRUE(NaturalLess("a9z", "a10a"));
  EXPECT_FALSE(NaturalLess("a1", "a1"));
}

TEST(NaturalLess, IsAStrictOrderWithLeadingZeros) {
  EXPECT_NE(NaturalLess("w01", "w1"), NaturalLess("w1", "w01"));
  EXPECT_TRUE(NaturalLess("w01", "w2"));
  EXPECT_TRUE(NaturalLess("w0", "w00") != NaturalLess("w00", "w0"));
}

TEST(Quoted, IsOneShortLine) {
  EXPECT_EQ(Quoted("a\nb\x1b[31mc"), "a b?[31mc");
  EXPECT_EQ(Quoted("gr\xc3\xb6\xc3\x9f"), "gr\xc3\xb6\xc3\x9f");
  const std::string cut = Quoted(std::string(999, 'x') + "\xc3\xb6" + std::string(5000, 'y'));
  EXPECT_EQ(cut, std::string(999, 'x') + "...");
}

TEST(Join, PutsCommasBetween) {
  EXPECT_EQ(Join({}), "");
  EXPECT_EQ(Join({"a"}), "a");
  EXPECT_EQ(Join({"a", "b"}), "a, b");
}

}  // namespace
}  // namespace longhaul::coordinator
