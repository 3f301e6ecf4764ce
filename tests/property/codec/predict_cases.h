// Random uses of predict, and one side of a boundary on the CPU, for tests that compare two ways to
// the same bytes.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codec/convert.h"
#include "codec/predict/format.h"
#include "codec/predict/tables.h"
#include "tests/property/codec/random_codecs.h"

namespace longhaul::codec {

inline predict::Tables TablesFor(const Codec& codec, uint32_t vocabulary, uint32_t channels) {
  auto tables = predict::Tables::Create(predict::TablesShapeFor(codec, vocabulary, channels));
  EXPECT_TRUE(tables.ok()) << tables.status();
  return *std::move(tables);
}

inline bool SameTables(const predict::Tables& a, const predict::Tables& b) {
  // Not std::ranges::equal: tests are compiled without optimisation, and tables are large.
  return a.shape() == b.shape() && a.check() == b.check() &&
         a.memory().size() == b.memory().size() &&
         std::memcmp(a.memory().data(), b.memory().data(), a.memory().size()) == 0;
}

// All numbers of tables: the mean and the rows.
inline std::vector<float> NumbersOf(const predict::Tables& tables) {
  const predict::TablesShape& shape = tables.shape();
  std::vector<float> numbers(tables.mean(), tables.mean() + shape.channels);
  for (uint64_t k = 0; k < shape.rows() * shape.channels; ++k) {
    numbers.push_back(Bf16ToF32(tables.Row(0)[k]));
  }
  return numbers;
}

// One side of a boundary.
struct PredictSide {
  PredictSide(const Codec& of, uint32_t vocabulary, const Shape& tensors)
      : codec(of), shape(tensors), tables(TablesFor(of, vocabulary, tensors.channels)) {}

  Context With(const Context& base, std::span<const uint32_t> ids, bool learns) {
    Context context = base;
    context.tables = &tables;
    context.token_ids = ids;
    context.learns = learns;
    return context;
  }
  std::vector<std::byte> Send(const TensorView& in, std::span<const uint32_t> ids,
                              bool learns = true, const Context& base = {}) {
    return MustEncode(codec, in, With(base, ids, learns));
  }
  // No ids: those of the blob.
  StatusOr<Tensor> Receive(std::span<const std::byte> blob, Dtype dtype = Dtype::kF32,
                           bool learns = true, std::span<const uint32_t> ids = {}) {
    const AlignedBytes workspace(codec.WorkspaceBytes(shape));
    Tensor out(dtype, shape);
    LH_RETURN_IF_ERROR(
        codec.Decode(blob, With({}, ids, learns), workspace.span(), out.mutable_view()));
    return out;
  }

  const Codec& codec;
  const Shape shape;
  predict::Tables tables;
};

// A boundary's life: codec, shape, vocabulary.
struct PredictCase {
  std::string codec;
  Shape shape;
  uint32_t vocabulary = 0;
};

inline PredictCase RandomPredictCase(std::mt19937* generator) {
  // Any pair of codec and parameters would take too long to list.
  static const std::vector<std::string> others = [] {
    std::vector<std::string> codecs;
    for (const std::string& codec : VariousCodecs()) {
      if (codec.rfind("aqsgd", 0) != 0 && codec.rfind("predict", 0) != 0) codecs.push_back(codec);
    }
    return codecs;
  }();
  constexpr const char* kRates[] = {"0.02", "0", "1", "0.3"};
  const uint32_t log2_pairs = Below(generator, 8);
  PredictCase result;
  result.codec =
      fmt::format("predict:pairs={},rate={},prior={}/{}", log2_pairs == 0 ? 0 : 1u << log2_pairs,
                  kRates[Below(generator, 4)], Below(generator, 3),
                  others[Below(generator, static_cast<uint32_t>(others.size()))]);
  result.shape = {1 + Below(generator, 3), 1 + Below(generator, 9), 1 + Below(generator, 90)};
  if (Below(generator, 8) == 0) result.shape.tokens += 60;
  // Ids of 4 bytes now and then, without large tables.
  const bool large = Below(generator, 40) == 0;
  if (large) result.shape.channels = 1 + Below(generator, 9);
  result.vocabulary = large ? 65537 : 1 + Below(generator, 40);
  return result;
}

// All equal, few different ones, or any.
inline std::vector<uint32_t> RandomIds(std::mt19937* generator, const PredictCase& of) {
  const uint32_t kinds[] = {1, std::min(3u, of.vocabulary), of.vocabulary};
  const uint32_t different = kinds[Below(generator, 3)];
  const uint32_t first = Below(generator, of.vocabulary - different + 1);
  std::vector<uint32_t> ids(uint64_t{of.shape.samples} * of.shape.tokens);
  for (uint32_t& id : ids) id = first + Below(generator, different);
  return ids;
}

}  // namespace longhaul::codec
