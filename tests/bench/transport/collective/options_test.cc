#include "tests/bench/transport/collective/options.h"

#include <gmock/gmock.h>

namespace longhaul::collective::bench {
namespace {

using ::testing::HasSubstr;

TEST(VariantsTest, PairsBelongToTheVariantBefore) {
  const auto variants = ParseVariants("native,zip:exchange=bounded,piece=4Mi,taco:block=64,native");
  ASSERT_TRUE(variants.ok()) << variants.status();
  ASSERT_EQ(variants->size(), 4);
  EXPECT_EQ((*variants)[1].text, "zip:exchange=bounded,piece=4Mi");
  EXPECT_EQ((*variants)[1].zip.exchange, zip::Exchange::kBounded);
  EXPECT_EQ((*variants)[1].zip.piece_elements, 4 << 20);
  EXPECT_EQ((*variants)[2].taco.block, 64);
  EXPECT_EQ((*variants)[3].text, "native#2");
}

TEST(VariantsTest, ASwitcherHasOthers) {
  const auto variants = ParseVariants("native,switcher:with=zip:exchange=bounded+taco,margin=0.1");
  ASSERT_TRUE(variants.ok()) << variants.status();
  const Variant& switcher = variants->back();
  ASSERT_EQ(switcher.with.size(), 2);
  EXPECT_EQ(switcher.with[0].zip.exchange, zip::Exchange::kBounded);
  EXPECT_EQ(switcher.margin, 0.1);
  EXPECT_EQ(ParseVariants("switcher")->front().with.size(), 1);
}

TEST(VariantsTest, SaysWhatIsWrong) {
  const auto message = [](const char* text) {
    return std::string(Message(ParseVariants(text).status()));
  };
  EXPECT_THAT(message("zap"), HasSubstr("got 'zap'"));
  EXPECT_THAT(message("native,,zip"), HasSubstr("got ''"));
  EXPECT_THAT(message("zip:exchange=fast"), HasSubstr("got 'fast'"));
  EXPECT_THAT(message("zip:block=64"), HasSubstr("no option 'block'"));
  EXPECT_THAT(message("taco:block=100"), HasSubstr("got '100'"));
  EXPECT_THAT(message("native:piece=1"), HasSubstr("no option 'piece'"));
  EXPECT_THAT(message("zip:piece=4MiB"), HasSubstr("got '4MiB'"));
  EXPECT_THAT(message("switcher:with=native"), HasSubstr("got 'native'"));
}

TEST(OptionsTest, RefusesWhatCannotBeMeasured) {
  const auto message = [](Options options, const char* variants = "native,zip") {
    options.variants = *ParseVariants(variants);
    if (options.operations.empty()) options.operations = {Op::kAllReduce};
    return std::string(Message(Check(&options, false)));
  };
  EXPECT_EQ(message({}), "");
  EXPECT_THAT(message({}, "zip"), HasSubstr("expected native"));
  EXPECT_THAT(message({.graph = true}), HasSubstr("--device cuda"));
  EXPECT_THAT(message({.cuda = true, .graph = true}), HasSubstr("zip:exchange=bounded"));
  EXPECT_THAT(message({.cuda = true, .graph = true}, "native,switcher"),
              HasSubstr("zip:exchange=bounded"));
  EXPECT_EQ(message({.cuda = true, .graph = true}, "native,taco,zip:exchange=bounded"), "");
  EXPECT_THAT(message({.operations = {Op::kAllToAll}, .in_place = true}), HasSubstr("in place"));
  EXPECT_THAT(message({.in_place = true, .iterations = 200}), HasSubstr("100 --iterations"));
  EXPECT_THAT(message({.routing = {.exponent = 1, .experts = 7}}), HasSubstr("multiple"));
  EXPECT_THAT(message({.csv = "/nowhere/rows.csv"}), HasSubstr("/nowhere/rows.csv"));
}

}  // namespace
}  // namespace longhaul::collective::bench
