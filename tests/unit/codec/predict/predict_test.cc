// predict between two sides: what it saves, what it learns of, and what is refused.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/blob.h"
#include "tests/property/codec/predict_cases.h"

namespace longhaul::codec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Shape kShape{2, 8, 128};
constexpr uint32_t kVocabulary = 5;
constexpr size_t kFront = kBlobHeaderBytes, kIds = kFront + predict::kFrontBytes;

struct Pair {
  explicit Pair(const std::string& text, const Shape& shape = kShape,
                uint32_t vocabulary = kVocabulary)
      : codec(MustParse(text)),
        sender(*codec, vocabulary, shape),
        receiver(*codec, vocabulary, shape) {}

  std::vector<float> Transfer(const std::vector<float>& x, const std::vector<uint32_t>& ids,
                              bool learns = true) {
    blob = sender.Send(Tensor(Dtype::kF32, sender.shape, x).view(), ids, learns);
    const auto out = receiver.Receive(blob, Dtype::kF32, learns);
    EXPECT_TRUE(out.ok()) << out.status();
    EXPECT_TRUE(SameTables(sender.tables, receiver.tables));
    return out.ok() ? out->values() : std::vector<float>();
  }

  std::unique_ptr<const Codec> codec;
  PredictSide sender, receiver;
  std::vector<std::byte> blob;
};

std::vector<uint32_t> Ids(uint32_t seed, const Shape& shape = kShape,
                          uint32_t vocabulary = kVocabulary) {
  std::mt19937 generator(seed);
  std::vector<uint32_t> ids(uint64_t{shape.samples} * shape.tokens);
  for (uint32_t& id : ids) id = Below(&generator, vocabulary);
  return ids;
}

// A value of each token, a small one of each pair, and noise.
std::vector<float> OfTokens(const std::vector<uint32_t>& ids, const Shape& shape, uint32_t seed) {
  std::vector<float> x = Activations(shape.elements(), seed, 0.1f);
  for (size_t k = 0; k < ids.size(); ++k) {
    const uint32_t before = k % shape.tokens == 0 ? 0 : ids[k - 1];
    const std::vector<float> token = Activations(shape.channels, 100 + ids[k]);
    const std::vector<float> pair = Activations(shape.channels, 200 + 10 * before + ids[k]);
    for (uint32_t c = 0; c < shape.channels; ++c) x[k * shape.channels + c] += token[c] + pair[c];
  }
  return x;
}

double ErrorAfter(const std::string& text, int visits) {
  Pair pair(text);
  double error = 0;
  for (int visit = 0; visit <= visits; ++visit) {
    const std::vector<uint32_t> ids = Ids(static_cast<uint32_t>(visit));
    const std::vector<float> x = OfTokens(ids, kShape, static_cast<uint32_t>(visit));
    error = RelativeL2(x, pair.Transfer(x, ids));
  }
  return error;
}

TEST(PredictCodec, ErrorsShrinkWithWhatIsLearned) {
  const double first = ErrorAfter("predict/gauss", 0);
  const double tokens = ErrorAfter("predict:rate=0/gauss", 30);
  const double pairs = ErrorAfter("predict:pairs=65536,rate=0/gauss", 30);
  EXPECT_LT(tokens, 0.85 * first);
  EXPECT_LT(pairs, 0.4 * tokens);
}

TEST(PredictCodec, SizesAreAsTheFormatHasThem) {
  const Shape gpt2_xl{1, 1024, 1600};
  const auto other = MustParse("gauss");
  const auto codec = MustParse("predict/gauss");
  const size_t plain = kIds + other->MaxEncodedBytes(gpt2_xl);
  EXPECT_EQ(codec->MinEncodedBytes(gpt2_xl), plain);
  EXPECT_EQ(codec->UsualEncodedBytes(gpt2_xl), plain + 2048);
  EXPECT_EQ(codec->MaxEncodedBytes(gpt2_xl), plain + 4096);
  EXPECT_EQ(codec->TableRows(50257), 50257u);
  EXPECT_EQ(MustParse("predict:pairs=65536")->TableRows(50257), 50257u + 65536);
  EXPECT_EQ(other->TableRows(50257), 0u);
  // The mean, counts, rows.
  EXPECT_EQ(predict::TablesShapeFor(*codec, 50257, 1600).bytes(),
            1600 * 4 + 201088 + 50257 * 1600ull * 2);
  Pair narrow("predict/gauss", {1, 9, 64}, 65536), wide("predict/gauss", {1, 9, 64}, 65537);
  const std::vector<float> x = Activations(9 * 64, 1);
  narrow.Transfer(x, Ids(1, {1, 9, 64}, 65536));
  wide.Transfer(x, Ids(1, {1, 9, 64}, 65537));
  EXPECT_EQ(narrow.blob.size(), kIds + 32 + other->MaxEncodedBytes({1, 9, 64}));
  EXPECT_EQ(wide.blob.size(), narrow.blob.size() + 16);
}

std::vector<float> RowOf(const predict::Tables& tables, uint64_t place) {
  std::vector<float> row;
  for (uint32_t c = 0; c < tables.shape().channels; ++c) {
    row.push_back(Bf16ToF32(tables.Row(place)[c]));
  }
  return row;
}
std::vector<float> MeanOf(const predict::Tables& tables) {
  return {tables.mean(), tables.mean() + tables.shape().channels};
}

TEST(PredictCodec, TheFirstTensorTeachesTheMeanOfAllTokens) {
  Pair pair("predict/none", {1, 2, 2}, 3);
  const predict::Tables& tables = pair.sender.tables;
  pair.Transfer({1, 2, 3, 6}, {1, 1});
  EXPECT_THAT(MeanOf(tables), ElementsAre(2, 4));
  EXPECT_THAT(tables.counts(), ElementsAre(0, 0, 0, 2));
  EXPECT_THAT(RowOf(tables, 1), ElementsAre(0, 0));
  // Then rows take what differs from it, whole where they learn for the first time. The mean moves
  // by 2 of 4 tokens.
  pair.Transfer({4, 8, 2, 4}, {2, 1});
  EXPECT_THAT(RowOf(tables, 2), ElementsAre(2, 4));
  EXPECT_THAT(RowOf(tables, 1), ElementsAre(0, 0));
  EXPECT_THAT(MeanOf(tables), ElementsAre(2.5, 5));
  EXPECT_THAT(tables.counts(), ElementsAre(0, 1, 1, 4));
}

TEST(PredictCodec, UnseenTokensArePredictedByTheMean) {
  Pair pair("predict/fixed:bits=8", {1, 1, 128}, 9);
  const std::vector<float> x(128, 3);
  pair.Transfer(x, {1});
  EXPECT_EQ(pair.Transfer(x, {7}), x);
}

TEST(PredictCodec, RowsAreRoundedToNearestEvenOfBf16) {
  Pair pair("predict:rate=0/none", {1, 1, 4}, 2);
  pair.Transfer({0, 0, 0, 0}, {0});
  pair.Transfer({0x1.01p0f, 0x1.03p0f, 0x1.010002p0f, -0x1.03p0f}, {1});
  EXPECT_THAT(RowOf(pair.sender.tables, 1), ElementsAre(1, 0x1.04p0f, 0x1.02p0f, -0x1.04p0f));
}

TEST(PredictCodec, RowsOfPairsLearnWhatTheNewRowsOfTokensDoNotKnow) {
  Pair once("predict:pairs=65536,prior=0/none", {1, 1, 1}, 3);
  const auto pairs_of = [](const predict::Tables& tables) {
    std::vector<float> numbers;
    for (uint64_t row = 3; row < tables.shape().rows(); ++row) {
      numbers.push_back(RowOf(tables, row)[0]);
    }
    return numbers;
  };
  once.Transfer({0}, {1});  // the mean is 0
  once.Transfer({4}, {2});
  EXPECT_THAT(RowOf(once.sender.tables, 2), ElementsAre(4));
  for (const float number : pairs_of(once.sender.tables)) ASSERT_EQ(number, 0);
  // 6 is the mean of the token; its pairs are 2 below and above. The prior stands for two tokens
  // more.
  Pair twice("predict:pairs=65536,prior=2/none", {1, 2, 1}, 3);
  twice.Transfer({0, 0}, {1, 1});
  twice.Transfer({4, 8}, {2, 2});
  EXPECT_THAT(RowOf(twice.sender.tables, 2), ElementsAre(6));
  const std::vector<float> pairs = pairs_of(twice.sender.tables);
  EXPECT_EQ(*std::ranges::min_element(pairs), Bf16ToF32(F32ToBf16(-2 / 3.0f)));
  EXPECT_EQ(*std::ranges::max_element(pairs), Bf16ToF32(F32ToBf16(2 / 3.0f)));
}

TEST(PredictCodec, TokensThatAreNoNumbersTeachNothing) {
  Pair pair("predict/none");
  const std::vector<uint32_t> ids(16, 3);
  std::vector<float> x(kShape.elements(), 1);
  pair.Transfer(x, ids);
  x[5] = kNan;
  x[3 * 128] = std::numeric_limits<float>::infinity();
  x[4 * 128] = 0x1p64f;
  const std::vector<float> out = pair.Transfer(x, ids);
  EXPECT_TRUE(std::isnan(out[5]));
  EXPECT_TRUE(std::isnan(out[3 * 128]));
  EXPECT_EQ(out[4 * 128], 0x1p64f);
  EXPECT_THAT(pair.sender.tables.counts(), ElementsAre(0, 0, 0, 13, 0, 16 + 13));
  EXPECT_THAT(MeanOf(pair.sender.tables), ::testing::Each(1));
  EXPECT_THAT(RowOf(pair.sender.tables, 3), ::testing::Each(0));
}

TEST(PredictCodec, ValidationPredictsAndTeachesNothing) {
  Pair pair("predict/gauss");
  const std::vector<uint32_t> ids = Ids(1);
  const std::vector<float> x = OfTokens(ids, kShape, 1);
  pair.Transfer(x, ids);
  const uint64_t check = pair.sender.tables.check();
  pair.Transfer(x, ids, /*learns=*/false);
  const std::vector<std::byte> blob = pair.blob;
  EXPECT_EQ(pair.sender.tables.check(), check);
  pair.Transfer(x, ids, /*learns=*/false);
  EXPECT_EQ(pair.blob, blob);
}

// What a hostile or confused peer may send to a side that has learned of one tensor.
class PredictRefuses : public ::testing::Test {
 protected:
  PredictRefuses() {
    pair_.Transfer(x_, ids_);
    blob_ = pair_.sender.Send(Tensor(Dtype::kF32, kShape, x_).view(), ids_);
  }
  // And learns nothing.
  std::string Refusal(const std::vector<std::byte>& blob, bool learns = true,
                      std::span<const uint32_t> ids = {}) {
    const uint64_t check = pair_.receiver.tables.check();
    const auto out = pair_.receiver.Receive(blob, Dtype::kF32, learns, ids);
    EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(pair_.receiver.tables.check(), check);
    return std::string(Message(out.status()));
  }
  std::vector<std::byte> With(size_t place, int value) {
    std::vector<std::byte> blob = blob_;
    blob[place] = static_cast<std::byte>(value);
    return blob;
  }
  Pair pair_{"predict:pairs=64/gauss"};
  const std::vector<uint32_t> ids_ = Ids(1);
  const std::vector<float> x_ = OfTokens(ids_, kShape, 1);
  std::vector<std::byte> blob_;
};

TEST_F(PredictRefuses, AnotherHistory) {
  EXPECT_THAT(Refusal(With(kFront, static_cast<int>(blob_[kFront]) ^ 1)),
              HasSubstr("tables of tokens differ"));
  ASSERT_TRUE(pair_.receiver.Receive(blob_).ok());
  EXPECT_THAT(Refusal(blob_), HasSubstr("tables of tokens differ"));  // twice
}

TEST_F(PredictRefuses, AnotherKind) {
  EXPECT_THAT(Refusal(blob_, /*learns=*/false), HasSubstr("teaches"));
  EXPECT_THAT(Refusal(With(kFront + 8, 3)), HasSubstr("of kind 3"));
  EXPECT_THAT(Refusal(With(kFront + 8, 0)), HasSubstr("of kind 0"));
  EXPECT_THAT(Refusal(With(kFront + 8, 1)), HasSubstr("teaches"));
  const std::vector<std::byte> plain =
      MustEncode(*pair_.codec, Tensor(Dtype::kF32, kShape, x_).view());
  EXPECT_THAT(Refusal(plain), HasSubstr("without ids"));
  EXPECT_TRUE(predict::IdsOf(plain).empty());
}

TEST_F(PredictRefuses, IdsThatCannotBe) {
  EXPECT_THAT(Refusal(With(kIds, kVocabulary)), HasSubstr("ids below 5; 5 came"));
  EXPECT_THAT(Refusal(With(kIds + 1, 1)), HasSubstr("ids below 5"));
  EXPECT_THAT(Refusal(With(kFront + 9, 4)), HasSubstr("ids of 2 bytes"));
  EXPECT_THAT(Refusal(With(kFront + 9, 3)), HasSubstr("ids of 3 bytes"));
  EXPECT_THAT(Refusal(With(kFront + 10, 1)), HasSubstr("none that an encoder writes"));
  std::vector<uint32_t> others = ids_;
  others[7] = (others[7] + 1) % kVocabulary;
  EXPECT_THAT(Refusal(blob_, true, others), HasSubstr("at place 7"));
}

TEST_F(PredictRefuses, AnyDamageIsDefined) {
  std::mt19937 generator(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> blob = blob_;
    if (round % 4 == 0) blob.resize(generator() % blob.size());
    for (uint32_t flips = generator() % 6; flips > 0 && !blob.empty(); --flips) {
      const size_t range = round % 2 == 0 ? blob.size() : std::min<size_t>(blob.size(), 200);
      blob[generator() % range] ^= static_cast<std::byte>(1u << generator() % 8);
    }
    const auto out = pair_.receiver.Receive(blob, Dtype::kBf16);
    if (out.ok()) {
      for (const float one : NumbersOf(pair_.receiver.tables)) ASSERT_TRUE(std::isfinite(one));
      pair_.receiver.tables.set_check(pair_.sender.tables.check());
      blob_ = pair_.sender.Send(Tensor(Dtype::kF32, kShape, x_).view(), ids_);
      continue;
    }
    ASSERT_TRUE(absl::IsInvalidArgument(out.status()) || absl::IsUnimplemented(out.status()));
  }
}

TEST_F(PredictRefuses, ContextsThatDoNotFit) {
  const Tensor in(Dtype::kF32, kShape, x_);
  std::vector<std::byte> blob(pair_.codec->MaxEncodedBytes(kShape));
  const AlignedBytes workspace(pair_.codec->WorkspaceBytes(kShape));
  EncodeResult result;
  const auto refusal = [&](const Context& context) {
    const Status status = pair_.codec->Encode(in.view(), context, workspace.span(), blob, &result);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(Message(status));
  };
  Context context;
  context.token_ids = ids_;
  EXPECT_THAT(refusal(context), HasSubstr("needs Context.tables"));
  context.tables = &pair_.sender.tables;
  context.token_ids = std::span(ids_).first(15);
  EXPECT_THAT(refusal(context), HasSubstr("the ids of 16 tokens with Context.tables; 15 came"));
  context.token_ids = {};
  EXPECT_THAT(refusal(context), HasSubstr("0 came"));
  std::vector<uint32_t> unknown = ids_;
  unknown.back() = kVocabulary;
  context.token_ids = unknown;
  EXPECT_THAT(refusal(context), HasSubstr("ids below 5; 5 came"));
  predict::Tables other = TablesFor(*MustParse("predict:pairs=8"), kVocabulary, 128);
  context.tables = &other;
  context.token_ids = ids_;
  EXPECT_THAT(refusal(context), HasSubstr("128 channels and 64 pairs, got 128 and 8"));
}

}  // namespace
}  // namespace longhaul::codec
