#include "codec/registry.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string_view>
#include <vector>

#include "codec/rounding.h"

namespace longhaul::codec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string NameOf(const std::string& text) {
  const auto codec = ParseCodec(text);
  return codec.ok() ? (*codec)->name() : std::string(Message(codec.status()));
}

TEST(Registry, FillsInDefaults) {
  EXPECT_EQ(NameOf("none"), "none");
  EXPECT_EQ(NameOf("bf16"), "bf16");
  EXPECT_EQ(NameOf("fp16"), "fp16");
  EXPECT_EQ(NameOf("fixed"), "fixed:bits=6,tile=64,rounding=nearest");
  EXPECT_EQ(NameOf("fixed:bits=4,rounding=stochastic"), "fixed:bits=4,tile=64,rounding=stochastic");
  EXPECT_EQ(NameOf("tah"), "tah:p=0.8,tile=64,alloc=64,tau=2,rounding=nearest");
  EXPECT_EQ(NameOf("tah:tau=2.0,p=0.80"), NameOf("tah"));
  EXPECT_EQ(NameOf("gauss"), "gauss:bits=4,block=128");
  EXPECT_EQ(NameOf("gauss:block=512"), "gauss:bits=4,block=512");
  EXPECT_EQ(NameOf("dither"), "dither:bits=2,block=128");
  EXPECT_EQ(NameOf("dither:bits=1.50,block=64"), "dither:bits=1.5,block=64");
  EXPECT_EQ(NameOf("taco"), "taco:format=e4m3,block=256");
  EXPECT_EQ(NameOf("taco:block=32,format=int8"), "taco:format=int8,block=32");
}

TEST(Registry, PredictNamesTheCodecOfItsDifferences) {
  EXPECT_EQ(NameOf("predict"), "predict:pairs=0,rate=0.05,prior=4/gauss:bits=4,block=128");
  EXPECT_EQ(NameOf("predict:pairs=0,prior=4,rate=0.5/fixed:bits=4"),
            "predict:pairs=0,rate=0.5,prior=4/fixed:bits=4,tile=64,rounding=nearest");
  EXPECT_EQ(NameOf(NameOf("predict/tah")), NameOf("predict/tah"));
  EXPECT_THAT(NameOf("predict:pairs=1000"), HasSubstr("'pairs' is out of range"));
  for (const char* text :
       {"predict:pairs=1", "predict:pairs=2097152", "predict:pairs=-2", "predict:pairs=x",
        "predict:rate=1.1", "predict:rate=-0.1", "predict:rate=nan", "predict:prior=1001",
        "predict:bits=4", "predict:/gauss", "predict/", "predict//", "predict/gauss/gauss",
        "predict/gauss:bits=9", "gauss/predict", "gauss:bits=4/none", "predicted"}) {
    EXPECT_EQ(ParseCodec(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(NameOf("predict/aqsgd"), HasSubstr("a codec without state"));
  EXPECT_THAT(NameOf("predict/predict"), HasSubstr("differences of predict"));
}

TEST(Registry, AllocFollowsTile) {
  EXPECT_EQ(NameOf("tah:tile=128"), "tah:p=0.8,tile=128,alloc=128,tau=2,rounding=nearest");
  EXPECT_EQ(NameOf("tah:alloc=token,tau=inf,p=1"),
            "tah:p=1,tile=64,alloc=token,tau=inf,rounding=nearest");
}

TEST(Registry, CanonicalNamesParseToThemselves) {
  for (int share = 0; share <= 1000; share += 7) {
    const std::string name = NameOf("tah:p=" + std::to_string(share / 1000.0));
    EXPECT_EQ(NameOf(name), name);
  }
}

TEST(Registry, NamesTheKnownCodecs) {
  EXPECT_THAT(
      NameOf("thah"),
      AllOf(HasSubstr("unknown codec 'thah'"), HasSubstr("mean 'tah'"),
            HasSubstr(
                "none, bf16, fp16, fixed, tah, gauss, dither, aqsgd, zip, taco, predict, python")));
  for (const char* name : {"gaus:bits=4", "taco8", "zap"}) {
    EXPECT_THAT(NameOf(name),
                AllOf(HasSubstr("unknown codec"), HasSubstr("known codecs: none, bf16")));
  }
}

TEST(Registry, ListsWhatItParses) {
  const std::vector<std::string_view> names = CodecNames();
  EXPECT_THAT(names, ::testing::IsSupersetOf({"none", "fixed", "tah", "gauss", "zip"}));
  for (const Family& family : Families()) {
    EXPECT_EQ(ParseCodec(family.name).status().ok(), !family.names_class) << family.name;
  }
}

// Blobs are read by the number, strings by the name.
TEST(Registry, FamiliesHaveNumbersAndNamesOfTheirOwn) {
  for (const Family& family : Families()) {
    EXPECT_EQ(FindFamily(family.id), &family) << family.name;
    EXPECT_EQ(FindFamily(family.name), &family) << family.name;
    const auto codec = ParseCodec(family.names_class ? fmt::format("{}:module:Class", family.name)
                                                     : std::string(family.name));
    ASSERT_TRUE(codec.ok()) << codec.status();
    EXPECT_EQ((*codec)->kind().id, family.id) << family.name;
    EXPECT_EQ(ToString(family.id), family.name);
    EXPECT_TRUE(family.from_header != nullptr || family.from_payload != nullptr) << family.name;
  }
  EXPECT_EQ(FindFamily(CodecId{0}), nullptr);
  EXPECT_EQ(ToString(CodecId{255}), "unknown codec");
}

TEST(Registry, NamesParametersAndRanges) {
  EXPECT_THAT(NameOf("fixed:bit=4"),
              AllOf(HasSubstr("no parameter 'bit'"), HasSubstr("mean 'bits'"), HasSubstr("3..10")));
  EXPECT_THAT(NameOf("none:bits=4"), HasSubstr("no parameters"));
}

class OutOfRange : public ::testing::TestWithParam<std::string> {};

TEST_P(OutOfRange, IsRefusedWithTheRange) {
  EXPECT_EQ(ParseCodec(GetParam()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(NameOf(GetParam()), AllOf(HasSubstr("out of range"), HasSubstr("32|64|128")));
}

INSTANTIATE_TEST_SUITE_P(Values, OutOfRange,
                         ::testing::Values("fixed:bits=2", "fixed:bits=11", "fixed:bits=-4",
                                           "fixed:bits=4.5", "fixed:bits=4x", "fixed:tile=16",
                                           "fixed:rounding=up", "tah:p=1.01", "tah:p=-0.1",
                                           "tah:p=nan", "tah:p=x", "tah:tile=65", "tah:alloc=0",
                                           "tah:alloc=96", "tah:alloc=2097152", "tah:tau=-1",
                                           "tah:tau=nan", "tah:tau=1001", "tah:rounding=Nearest",
                                           "tah:alloc=4294967360"));

TEST(Registry, RefusesImpossibleGauss) {
  for (const char* text : {"gauss:bits=1", "gauss:bits=7", "gauss:bits=x", "gauss:block=32",
                           "gauss:block=96", "gauss:block=1024", "gauss:block=-64"}) {
    EXPECT_EQ(ParseCodec(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(NameOf(text), AllOf(HasSubstr("out of range"), HasSubstr("64|128|256|512")));
  }
}

TEST(Registry, RefusesImpossibleDither) {
  for (const char* text :
       {"dither:bits=0", "dither:bits=2.5", "dither:bits=1.7", "dither:bits=4", "dither:bits=nan",
        "dither:bits=-2", "dither:bits=1e9", "dither:block=32", "dither:block=512"}) {
    EXPECT_EQ(ParseCodec(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(NameOf(text), AllOf(HasSubstr("out of range"), HasSubstr("64|128|256 (128)")));
  }
}

TEST(Registry, RefusesImpossibleTaco) {
  for (const char* text : {"taco:block=16", "taco:block=1024", "taco:block=96", "taco:block=x"}) {
    EXPECT_EQ(ParseCodec(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(NameOf(text),
                AllOf(HasSubstr("'block' is out of range"), HasSubstr("32|64|128|256|512")));
  }
  for (const char* text : {"taco:format=e4m4", "taco:format=E4M3", "taco:format=1"}) {
    EXPECT_EQ(ParseCodec(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(NameOf(text),
                AllOf(HasSubstr("'format' is out of range"), HasSubstr("e4m3|e5m2|int8")));
  }
}

TEST(Registry, RefusesMalformedText) {
  for (const char* text : {"", ":", "tah:", "tah:p", "tah:p=", "tah:rounding=", "tah:=1",
                           "tah:p=1,", "tah:p=1,p=1", "tah p=1", "TAH", " tah"}) {
    EXPECT_EQ(ParseCodec(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Registry, DescribesEveryCodecOnALine) {
  EXPECT_THAT(DescribeCodecs(), AllOf(HasSubstr("none"), HasSubstr("bf16"), HasSubstr("fp16"),
                                      HasSubstr("bits=3..10 (6)"), HasSubstr("p=0..1 (0.8)")));
}

TEST(RoundingNoise, IsRandomAccess) {
  Context context;
  context.seed = 5;
  const RoundingNoise noise(context);
  uint16_t all[64];
  uint16_t part[8];
  noise.Fill(128, 64, all);
  noise.Fill(160, 8, part);
  for (int k = 0; k < 8; ++k) EXPECT_EQ(part[k], all[32 + k]);
}

// As the comment of rounding.h has it, beyond 2^32 blocks too.
TEST(RoundingNoise, IsHalvesOfPhilox) {
  Context context;
  context.seed = 6;
  const RoundingNoise noise(context);
  const Philox::Counter& key = noise.block();
  for (const uint64_t index : {uint64_t{0}, uint64_t{40}, uint64_t{9} << 33}) {
    uint16_t got[8];
    noise.Fill(index, 8, got);
    const uint64_t block = index / 8;
    const Philox::Counter words = Philox::Generate<7>(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), key[0], key[1]},
        {key[2], key[3]});
    for (size_t k = 0; k < 8; ++k) {
      EXPECT_EQ(got[k], k % 2 == 0 ? words[k / 2] & 0xffff : words[k / 2] >> 16) << k;
    }
  }
}

TEST(RoundingNoise, IsUniform) {
  const RoundingNoise noise(Context{});
  double sum = 0;
  double squares = 0;
  double next = 0;  // products of neighbours
  constexpr int kCount = 1 << 16;
  static uint16_t numbers[kCount];
  std::vector<int> places(16);
  noise.Fill(0, kCount, numbers);
  for (int k = 0; k < kCount; ++k) {
    const double value = RoundingNoise::Middle(numbers[k]);
    ASSERT_GT(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
    squares += value * value;
    if (k > 0) next += (value - 0.5) * (RoundingNoise::Middle(numbers[k - 1]) - 0.5);
    for (size_t bit = 0; bit < 16; ++bit) places[bit] += numbers[k] >> bit & 1;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 5 * 0.2887 / 256);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.01);
  EXPECT_NEAR(next / kCount, 0, 5.0 / 12 / 256);
  for (const int ones : places) EXPECT_NEAR(ones, kCount / 2.0, 5 * 128);
}

TEST(RoundingNoise, MiddlesAreExact) {
  for (int number = 0; number < 1 << 16; ++number) {
    ASSERT_EQ(RoundingNoise::Middle(static_cast<uint16_t>(number)), (number + 0.5) / 65536.0);
  }
}

}  // namespace
}  // namespace longhaul::codec
