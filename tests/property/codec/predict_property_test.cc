// predict over random tensors, ids and codecs: both sides of a boundary stay alike to the bit with
// every instruction set, and are what the definition says.
#include <cmath>

#include "codec/predict/reference.h"
#include "codec/simd/targets.h"
#include "tests/property/codec/predict_cases.h"

namespace longhaul::codec {
namespace {

constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kF16, Dtype::kBf16};

class Predict : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(UseKernelTarget("").ok()); }
};

// 10,000 tensors: sent by the best instruction set, received by all.
TEST_F(Predict, SidesStayAlikeWithEveryInstructionSet) {
  const std::vector<std::string> targets = KernelTargets();
  std::mt19937 generator(20261125);
  for (int boundary = 0; boundary < 2500; ++boundary) {
    const PredictCase of = RandomPredictCase(&generator);
    const auto codec = MustParse(of.codec);
    PredictSide sender(*codec, of.vocabulary, of.shape);
    std::vector<PredictSide> receivers;
    for (size_t k = 0; k < targets.size(); ++k) {
      receivers.emplace_back(*codec, of.vocabulary, of.shape);
    }
    for (int visit = 0; visit < 4; ++visit) {
      const std::string where =
          fmt::format("boundary {}, visit {}: {}, {} x {} x {}", boundary, visit, of.codec,
                      of.shape.samples, of.shape.tokens, of.shape.channels);
      const std::vector<uint32_t> ids = RandomIds(&generator, of);
      const bool learns = Below(&generator, 6) != 0;
      const Tensor in(kDtypes[Below(&generator, 3)], of.shape,
                      RandomContents(of.shape.elements(), &generator));
      const Dtype out_dtype = kDtypes[Below(&generator, 3)];
      const Context context = RandomContext(&generator);
      // The same blob from any set; the last one's tables are kept.
      std::vector<std::byte> blob;
      for (const std::string& target : {targets.back(), targets.front()}) {
        ASSERT_TRUE(UseKernelTarget(target).ok());
        PredictSide once(*codec, of.vocabulary, of.shape);
        once.tables.CopyFrom(sender.tables);
        const std::vector<std::byte> again = once.Send(in.view(), ids, learns, context);
        ASSERT_TRUE(blob.empty() || again == blob) << where;
        blob = again;
        if (target == targets.front()) sender.tables = std::move(once.tables);
      }
      ASSERT_EQ(predict::IdsOf(blob), ids) << where;
      std::vector<std::byte> expected;
      for (size_t k = 0; k < targets.size(); ++k) {
        ASSERT_TRUE(UseKernelTarget(targets[k]).ok());
        const auto out = receivers[k].Receive(blob, out_dtype, learns);
        ASSERT_TRUE(out.ok()) << where << ": " << out.status();
        const auto* bytes = static_cast<const std::byte*>(out->view().data);
        const std::vector<std::byte> decoded(bytes, bytes + out->view().size_bytes());
        if (k == 0) expected = decoded;
        ASSERT_TRUE(decoded == expected) << where << " on " << targets[k];
        ASSERT_TRUE(SameTables(sender.tables, receivers[k].tables))
            << where << " on " << targets[k];
      }
      for (const float one : NumbersOf(sender.tables)) ASSERT_TRUE(std::isfinite(one)) << where;
    }
  }
}

// A row is what the definition says, rounded to bf16. Then the reference takes the rounded one, so
// that roundings do not add up.
void CompareRows(const predict::Tables& tables, bool of_pairs,
                 predict::ReferenceTables* reference) {
  const predict::TablesShape& shape = tables.shape();
  const uint32_t rows = of_pairs ? shape.pairs : shape.vocabulary;
  for (uint32_t row = 0; row < rows; ++row) {
    const uint16_t* const got = tables.Row(row + (of_pairs ? shape.vocabulary : 0));
    std::vector<double>* const expected = reference->RowIfLearned(of_pairs, row);
    for (uint32_t c = 0; c < shape.channels; ++c) {
      const double wanted = expected == nullptr ? 0 : (*expected)[c];
      ASSERT_NEAR(Bf16ToF32(got[c]), wanted, std::fabs(wanted) / 256 + 1e-4)
          << (of_pairs ? "pair " : "token ") << row;
      if (expected != nullptr) (*expected)[c] = Bf16ToF32(got[c]);
    }
  }
}

// 10,000 tensors through a codec that loses nothing: what is learned and what is sent is what the
// definition says.
TEST_F(Predict, IsTheReferences) {
  std::mt19937 generator(7);
  for (int boundary = 0; boundary < 2000; ++boundary) {
    PredictCase of = RandomPredictCase(&generator);
    of.codec = of.codec.substr(0, of.codec.find('/')) + "/none";
    const auto codec = MustParse(of.codec);
    PredictSide sender(*codec, of.vocabulary, of.shape);
    const std::vector<std::byte> empty = MustEncode(*codec, {nullptr, Dtype::kF32, {}});
    const auto params = predict::FromHeader(ParseBlobHeader(empty)->parameters);
    ASSERT_TRUE(params.ok());
    predict::ReferenceTables reference(*params, of.shape.channels);
    for (int visit = 0; visit < 5; ++visit) {
      const std::vector<uint32_t> ids = RandomIds(&generator, of);
      std::vector<float> x = Activations(of.shape.elements(), generator());
      if (visit == 3) x[generator() % x.size()] = NAN;
      const std::vector<std::byte> blob = sender.Send(Tensor(Dtype::kF32, of.shape, x).view(), ids);
      // The differences are the blob within.
      const std::vector<double> prediction = reference.Predict(ids, of.shape);
      const size_t begin = blob.size() - x.size() * sizeof(float);
      for (size_t k = 0; k < x.size(); ++k) {
        float r = 0;
        std::memcpy(&r, &blob[begin + k * sizeof(float)], sizeof(r));
        if (std::isnan(x[k])) {
          ASSERT_TRUE(std::isnan(r));
        } else {
          ASSERT_NEAR(r, x[k] - prediction[k], 1e-4) << of.codec << ", element " << k;
        }
      }
      const std::vector<double> decoded(x.begin(), x.end());
      reference.LearnTokens(ids, decoded);
      CompareRows(sender.tables, /*of_pairs=*/false, &reference);
      reference.LearnPairsAndMean(ids, of.shape, decoded);
      CompareRows(sender.tables, /*of_pairs=*/true, &reference);
      for (uint32_t c = 0; c < of.shape.channels; ++c) {
        ASSERT_NEAR(sender.tables.mean()[c], reference.mean()[c], 1e-4) << of.codec;
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace longhaul::codec
