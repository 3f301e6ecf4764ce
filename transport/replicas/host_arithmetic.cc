#include "transport/replicas/host_arithmetic.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "codec/convert.h"
#include "codec/sdp4bit/cpu/kernels.h"
#include "codec/sdp4bit/format.h"
#include "codec/tagc/select.h"
#include "transport/replicas/dense.h"

namespace longhaul::replicas {
namespace {

namespace sdp4bit = codec::sdp4bit;
static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

// Elements of a piece that are coded in one go: two arrays of so many fit into 256 KiB of cache.
constexpr uint64_t kBlock = 8 * kUnit;
using BlockOfNumbers = std::array<float, kBlock>;

// Elements [first, first + count) of a piece, whose own bytes begin at `offset` of a payload.
struct Block {
  size_t piece = 0;
  uint64_t first = 0, count = 0, offset = 0;

  template <class T>
  std::span<T> Of(std::span<T> numbers) const {
    return numbers.subspan(first, count);
  }
};

uint64_t BytesOf(GradientForm form, const Piece& piece) {
  return GradientBytes(form, piece);
}
uint64_t BytesOf(ParameterForm form, const Piece& piece) {
  return ParameterBytes(form, piece);
}

// Offsets of pieces that follow each other in a payload.
template <class Form>
std::vector<Block> BlocksOf(Form form, std::span<const Piece> pieces) {
  std::vector<Block> blocks;
  uint64_t offset = 0;
  for (size_t k = 0; k < pieces.size(); ++k) {
    for (uint64_t first = 0; first < pieces[k].count; first += kBlock) {
      blocks.push_back({k, first, std::min(kBlock, pieces[k].count - first), offset});
    }
    offset += BytesOf(form, pieces[k]);
  }
  return blocks;
}
template <class Form>
std::vector<Block> BlocksOf(Form form, std::span<const OwnPiece> own) {
  std::vector<Piece> pieces;
  for (const OwnPiece& one : own) pieces.push_back(one.piece);
  return BlocksOf(form, std::span<const Piece>(pieces));
}

template <class Body>
void ForAll(codec::Parallel* parallel, const std::vector<Block>& blocks, const Body& body) {
  if (parallel == nullptr) {
    std::ranges::for_each(blocks, body);
  } else {
    parallel->For(blocks.size(), [&](size_t k) { body(blocks[k]); });
  }
}

// Calls body(part) for parts of equal spans.
template <class Body, class First, class... Others>
void ForParts(codec::Parallel* parallel, const Body& body, std::span<First> first,
              const Others&... others) {
  codec::ForRanges(parallel, first.size(), kBlock, kBlock, [&](uint64_t begin, uint64_t end) {
    body(first.subspan(begin, end - begin), others.subspan(begin, end - begin)...);
  });
}

void PutFp32(std::span<const float> values, std::byte* out) {
  std::memcpy(out, values.data(), values.size_bytes());
}
void GetFp32(const std::byte* from, std::span<float> out) {
  std::memcpy(out.data(), from, out.size_bytes());
}
void PutBf16(std::span<const float> values, std::byte* out) {
  for (size_t k = 0; k < values.size(); ++k) {
    const uint16_t half = codec::F32ToBf16(values[k]);
    std::memcpy(out + 2 * k, &half, 2);
  }
}
void GetBf16(const std::byte* from, std::span<float> out) {
  for (size_t k = 0; k < out.size(); ++k) {
    uint16_t half = 0;
    std::memcpy(&half, from + 2 * k, 2);
    out[k] = codec::Bf16ToF32(half);
  }
}

// The first `count` numbers become what contributions are summed as, filled up with zeros.
std::span<float> ToSummands(GradientForm form, BlockOfNumbers* numbers, uint64_t count) {
  const auto summands = std::span(*numbers).first(SummandsOf(form, count));
  std::ranges::fill(summands.subspan(count), 0.0f);
  if (form == GradientForm::kSdp4bit) sdp4bit::cpu::Transform(summands);
  return summands;
}

sdp4bit::cpu::Part PartOf(const Block& block, const Piece& piece) {
  return {.first = block.first,
          .of = sdp4bit::Transformed(piece.count),
          .group = sdp4bit::kGradientGroup};
}
sdp4bit::cpu::Part DifferencePartOf(const Block& block, const Piece& piece) {
  return {.first = block.first, .of = piece.count, .group = sdp4bit::kDifferenceGroup};
}

void Encode(GradientForm form, const Block& block, const Piece& piece,
            std::span<const float> summands, const codec::RoundingNoise& noise,
            std::byte* of_piece) {
  switch (form) {
    case GradientForm::kFp32:
      return PutFp32(summands, of_piece + 4 * block.first);
    case GradientForm::kSdp4bit:
      return sdp4bit::cpu::Encode(summands, PartOf(block, piece), &noise, piece.at + block.first,
                                  of_piece);
    default:
      return PutBf16(summands, of_piece + 2 * block.first);
  }
}

void Decode(GradientForm form, const Block& block, const Piece& piece, const std::byte* of_piece,
            std::span<float> summands) {
  switch (form) {
    case GradientForm::kFp32:
      return GetFp32(of_piece + 4 * block.first, summands);
    case GradientForm::kSdp4bit:
      return sdp4bit::cpu::Decode(of_piece, PartOf(block, piece), summands);
    default:
      return GetBf16(of_piece + 2 * block.first, summands);
  }
}

// Values become what a block of a piece's bytes makes of them.
void DecodeValues(ParameterForm form, const Block& block, const Piece& piece,
                  const std::byte* of_piece, std::span<float> values) {
  if (form == ParameterForm::kFp32) {
    GetFp32(of_piece + 4 * block.first, values);
  } else if (form == ParameterForm::kBf16) {
    GetBf16(of_piece + 2 * block.first, values);
  } else {
    BlockOfNumbers numbers;
    const auto difference = std::span(numbers).first(values.size());
    sdp4bit::cpu::Decode(of_piece, DifferencePartOf(block, piece), difference);
    for (size_t k = 0; k < values.size(); ++k) values[k] += difference[k];
  }
}

}  // namespace

StatusOr<Numbers> HostArithmetic::Make(uint64_t count) {
  auto values = std::make_shared<std::vector<float>>(count);
  return Numbers{*values, values};
}

Status HostArithmetic::Read(std::span<const float> numbers, std::span<float> in_host) {
  return Copy(numbers, in_host);
}

Status HostArithmetic::Write(std::span<const float> in_host, std::span<float> numbers) {
  return Copy(in_host, numbers);
}

Status HostArithmetic::Copy(std::span<const float> from, std::span<float> to) {
  ForParts(
      parallel_, [](auto some, auto there) { std::ranges::copy(some, there.begin()); }, from, to);
  return absl::OkStatus();
}

Status HostArithmetic::Fill(float value, std::span<float> numbers) {
  ForParts(
      parallel_, [value](auto some) { std::ranges::fill(some, value); }, numbers);
  return absl::OkStatus();
}

StatusOr<double> HostArithmetic::SumOfSquares(std::span<const std::span<const float>> numbers) {
  std::vector<std::span<const float>> parts;
  for (std::span<const float> rest : numbers) {
    for (; rest.size() > kBlock; rest = rest.subspan(kBlock)) parts.push_back(rest.first(kBlock));
    parts.push_back(rest);
  }
  std::vector<double> sums(parts.size());
  const auto sum_part = [&](size_t k) {
    for (const float number : parts[k]) sums[k] += static_cast<double>(number) * number;
  };
  if (parallel_ == nullptr) {
    for (size_t k = 0; k < parts.size(); ++k) sum_part(k);
  } else {
    parallel_->For(parts.size(), sum_part);
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

Status HostArithmetic::EncodeGradients(GradientForm form, std::span<const Piece> pieces,
                                       std::span<const ParameterMemory> memory,
                                       const codec::RoundingNoise& noise,
                                       const Residuals& residuals, std::span<std::byte> out) {
  ForAll(parallel_, BlocksOf(form, pieces), [&](const Block& block) {
    const Piece& piece = pieces[block.piece];
    std::byte* const of_piece = out.data() + block.offset;
    const auto gradient = block.Of(Part(memory[piece.parameter].gradient, piece));
    const std::span<float> of_parameter = residuals[piece.parameter].span;
    std::span<float> residual;  // what is wanted, and then what of it was lost
    BlockOfNumbers numbers;
    std::ranges::copy(gradient, numbers.begin());
    if (!of_parameter.empty()) {
      residual = block.Of(Part(of_parameter, piece));
      for (size_t k = 0; k < residual.size(); ++k) residual[k] = numbers[k] += residual[k];
    }
    const std::span<float> summands = ToSummands(form, &numbers, block.count);
    Encode(form, block, piece, summands, noise, of_piece);
    if (residual.empty()) return;
    Decode(form, block, piece, of_piece, summands);
    if (form == GradientForm::kSdp4bit) sdp4bit::cpu::TransformBack(summands);
    for (size_t k = 0; k < residual.size(); ++k) {
      const float lost = residual[k] - summands[k];
      residual[k] = std::isfinite(lost) ? lost : 0;
    }
  });
  return absl::OkStatus();
}

Status HostArithmetic::ReduceGradients(GradientForm form, std::span<const OwnPiece> own,
                                       std::span<const ParameterMemory> memory,
                                       std::span<const std::span<const std::byte>> payloads) {
  const auto replicas = static_cast<float>(payloads.size());
  ForAll(parallel_, BlocksOf(form, own), [&](const Block& block) {
    const Piece& piece = own[block.piece].piece;
    BlockOfNumbers sum, other;
    std::span<float> sums, summands;
    for (size_t replica = 0; replica < payloads.size(); ++replica) {
      BlockOfNumbers* const numbers = replica == 0 ? &sum : &other;
      if (payloads[replica].empty()) {
        std::ranges::copy(block.Of(Part(memory[piece.parameter].gradient, piece)),
                          numbers->begin());
        summands = ToSummands(form, numbers, block.count);
      } else {
        summands = std::span(*numbers).first(SummandsOf(form, block.count));
        Decode(form, block, piece, payloads[replica].data() + block.offset, summands);
      }
      if (replica == 0) {
        sums = summands;
      } else {
        for (size_t k = 0; k < sums.size(); ++k) sums[k] += summands[k];
      }
    }
    if (form == GradientForm::kSdp4bit) sdp4bit::cpu::TransformBack(sums);
    const auto mean = block.Of(own[block.piece].gradient);
    for (size_t k = 0; k < mean.size(); ++k) mean[k] = sums[k] / replicas;
  });
  return absl::OkStatus();
}

Status HostArithmetic::EncodeParameters(ParameterForm form, std::span<const OwnPiece> own,
                                        std::span<const ParameterMemory> memory,
                                        std::span<std::byte> out) {
  ForAll(parallel_, BlocksOf(form, own), [&](const Block& block) {
    const Piece& piece = own[block.piece].piece;
    std::byte* const of_piece = out.data() + block.offset;
    const auto value = block.Of(Part(memory[piece.parameter].value, piece));
    const auto master = block.Of(std::span<const float>(own[block.piece].master));
    if (form == ParameterForm::kFp32) {
      PutFp32(master, of_piece + 4 * block.first);
    } else if (form == ParameterForm::kBf16) {
      PutBf16(master, of_piece + 2 * block.first);
    } else {
      BlockOfNumbers difference;
      for (size_t k = 0; k < value.size(); ++k) difference[k] = master[k] - value[k];
      // To nearest: what is lost stays in the difference, and comes again.
      sdp4bit::cpu::Encode(std::span(difference).first(value.size()),
                           DifferencePartOf(block, piece), nullptr, 0, of_piece);
    }
    DecodeValues(form, block, piece, of_piece, value);
  });
  return absl::OkStatus();
}

Status HostArithmetic::DecodeParameters(ParameterForm form, std::span<const Piece> pieces,
                                        std::span<const std::byte> payload,
                                        std::span<const ParameterMemory> memory) {
  ForAll(parallel_, BlocksOf(form, pieces), [&](const Block& block) {
    const Piece& piece = pieces[block.piece];
    DecodeValues(form, block, piece, payload.data() + block.offset,
                 block.Of(Part(memory[piece.parameter].value, piece)));
  });
  return absl::OkStatus();
}

StatusOr<bool> HostArithmetic::AllFinite(std::span<const float> numbers) {
  std::atomic<bool> all = true;
  ForParts(
      parallel_,
      [&](auto part) {
        if (!std::ranges::all_of(part, [](float x) { return std::isfinite(x); })) all = false;
      },
      numbers);
  return all;
}

Status HostArithmetic::AddAndSelect(std::span<const float> gradient, std::span<float> residual,
                                    uint64_t keep, std::span<uint64_t> bitmap) {
  ForParts(
      parallel_,
      [](auto some, auto sums) {
        for (size_t k = 0; k < some.size(); ++k) {
          const float sum = sums[k] + some[k];
          sums[k] = std::isfinite(sum) ? sum : some[k];
        }
      },
      gradient, residual);
  codec::tagc::Select(residual, keep, bitmap);
  return absl::OkStatus();
}

StatusOr<std::vector<float>> HostArithmetic::Get(std::span<const uint64_t> bitmap,
                                                 std::span<const float> numbers) {
  std::vector<float> values;
  codec::tagc::ForEach(bitmap, [&](uint64_t k) { values.push_back(numbers[k]); });
  return values;
}

Status HostArithmetic::Put(std::span<const uint64_t> bitmap, std::span<const float> values,
                           std::span<float> numbers) {
  size_t next = 0;
  codec::tagc::ForEach(bitmap, [&](uint64_t k) { numbers[k] = values[next++]; });
  return absl::OkStatus();
}

Status HostArithmetic::Divide(std::span<const float> numbers, float divisor, std::span<float> out) {
  ForParts(
      parallel_,
      [divisor](auto some, auto there) {
        for (size_t k = 0; k < some.size(); ++k) there[k] = some[k] / divisor;
      },
      numbers, out);
  return absl::OkStatus();
}

}  // namespace longhaul::replicas
