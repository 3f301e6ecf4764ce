#include "transport/replicas/dense.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/convert.h"
#include "codec/sdp4bit/cpu/kernels.h"
#include "codec/sdp4bit/format.h"

namespace longhaul::replicas {
namespace {

namespace sdp4bit = codec::sdp4bit;
static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");
static_assert(kUnit % sdp4bit::kDifferenceGroup == 0 && kUnit % sdp4bit::kGradientGroup == 0);

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

uint64_t BytesOf(GradientForm form, const Piece& piece) {
  switch (form) {
    case GradientForm::kFp32:
      return 4 * piece.count;
    case GradientForm::kSdp4bit:
      return sdp4bit::SectionBytes(sdp4bit::Transformed(piece.count), sdp4bit::kGradientGroup);
    default:
      return 2 * piece.count;
  }
}
uint64_t BytesOf(ParameterForm form, const Piece& piece) {
  switch (form) {
    case ParameterForm::kFp32:
      return 4 * piece.count;
    case ParameterForm::kBf16:
      return 2 * piece.count;
    default:
      return sdp4bit::SectionBytes(piece.count, sdp4bit::kDifferenceGroup);
  }
}

// A piece in the domain in which contributions are summed, filled up with zeros.
void ToSummands(GradientForm form, std::span<const float> values, std::vector<float>* out) {
  out->assign(values.begin(), values.end());
  if (form != GradientForm::kSdp4bit) return;
  out->resize(sdp4bit::Transformed(values.size()));
  sdp4bit::cpu::Transform(*out);
}

void Decode(GradientForm form, const std::byte* from, std::span<float> out) {
  switch (form) {
    case GradientForm::kFp32:
      return GetFp32(from, out);
    case GradientForm::kSdp4bit:
      return sdp4bit::cpu::Decode(from, sdp4bit::kGradientGroup, out);
    default:
      return GetBf16(from, out);
  }
}

void Encode(GradientForm form, const Piece& piece, std::span<const float> summands,
            const codec::RoundingNoise& noise, std::byte* out) {
  switch (form) {
    case GradientForm::kFp32:
      return PutFp32(summands, out);
    case GradientForm::kSdp4bit:
      return sdp4bit::cpu::Encode(summands, sdp4bit::kGradientGroup, &noise, piece.at, out);
    default:
      return PutBf16(summands, out);
  }
}

void KeepWhatWasLost(GradientForm form, const std::byte* sent, std::span<const float> wanted,
                     std::span<float> residual, std::vector<float>* scratch) {
  scratch->resize(form == GradientForm::kSdp4bit ? sdp4bit::Transformed(wanted.size())
                                                 : wanted.size());
  Decode(form, sent, *scratch);
  if (form == GradientForm::kSdp4bit) sdp4bit::cpu::TransformBack(*scratch);
  for (size_t k = 0; k < wanted.size(); ++k) {
    const float lost = wanted[k] - (*scratch)[k];
    residual[k] = std::isfinite(lost) ? lost : 0;
  }
}

}  // namespace

GradientForm DenseForm(const GradientOptions& gradients) {
  if (gradients.form == GradientForm::kTagc) return GradientForm::kBf16;
  if (gradients.form == GradientForm::kLocalSgd) return GradientForm::kSdp4bit;
  return gradients.form;
}

uint64_t GradientBytes(GradientForm form, std::span<const Piece> pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += BytesOf(form, piece);
  return bytes;
}

void EncodeGradients(GradientForm form, std::span<const Piece> pieces,
                     std::span<const ParameterMemory> memory, const codec::RoundingNoise& noise,
                     Residuals* residuals, std::span<std::byte> out) {
  std::vector<float> wanted, summands, scratch;
  std::byte* to = out.data();
  for (const Piece& piece : pieces) {
    const std::span<const float> gradient = Part(memory[piece.parameter].gradient, piece);
    std::vector<float>& of_parameter = (*residuals)[piece.parameter];
    wanted.assign(gradient.begin(), gradient.end());
    if (!of_parameter.empty()) {
      const std::span<float> residual = Part(of_parameter, piece);
      for (size_t k = 0; k < wanted.size(); ++k) wanted[k] += residual[k];
    }
    ToSummands(form, wanted, &summands);
    Encode(form, piece, summands, noise, to);
    if (!of_parameter.empty()) {
      KeepWhatWasLost(form, to, wanted, Part(of_parameter, piece), &scratch);
    }
    to += BytesOf(form, piece);
  }
}

void ReduceGradients(GradientForm form, std::span<OwnPiece> own,
                     std::span<const ParameterMemory> memory,
                     std::span<const std::span<const std::byte>> payloads) {
  const auto replicas = static_cast<float>(payloads.size());
  std::vector<float> sum, summand;
  uint64_t offset = 0;
  for (OwnPiece& to : own) {
    const Piece& piece = to.piece;
    for (size_t replica = 0; replica < payloads.size(); ++replica) {
      if (payloads[replica].empty()) {
        ToSummands(form, Part(memory[piece.parameter].gradient, piece), &summand);
      } else {
        summand.resize(form == GradientForm::kSdp4bit ? sdp4bit::Transformed(piece.count)
                                                      : piece.count);
        Decode(form, payloads[replica].data() + offset, summand);
      }
      if (replica == 0) {
        sum.swap(summand);
      } else {
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += summand[k];
      }
    }
    if (form == GradientForm::kSdp4bit) sdp4bit::cpu::TransformBack(sum);
    for (size_t k = 0; k < to.gradient.size(); ++k) to.gradient[k] = sum[k] / replicas;
    offset += BytesOf(form, piece);
  }
}

uint64_t ParameterBytes(ParameterForm form, std::span<const Piece> pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += BytesOf(form, piece);
  return bytes;
}

void EncodeParameters(ParameterForm form, std::span<const OwnPiece> own,
                      std::span<const ParameterMemory> memory, std::span<std::byte> out) {
  std::vector<float> difference;
  std::byte* to = out.data();
  for (const OwnPiece& from : own) {
    const std::span<float> value = Part(memory[from.piece.parameter].value, from.piece);
    if (form == ParameterForm::kFp32) {
      PutFp32(from.master, to);
    } else if (form == ParameterForm::kBf16) {
      PutBf16(from.master, to);
    } else {
      difference.resize(value.size());
      for (size_t k = 0; k < value.size(); ++k) difference[k] = from.master[k] - value[k];
      // To nearest: what is lost stays in the difference, and comes again.
      sdp4bit::cpu::Encode(difference, sdp4bit::kDifferenceGroup, nullptr, 0, to);
    }
    to += BytesOf(form, from.piece);
    const std::span<const std::byte> written(out.data(), to);
    DecodeParameters(form, std::span(&from.piece, 1), written.last(BytesOf(form, from.piece)),
                     memory);
  }
}

void DecodeParameters(ParameterForm form, std::span<const Piece> pieces,
                      std::span<const std::byte> payload, std::span<const ParameterMemory> memory) {
  std::vector<float> difference;
  const std::byte* from = payload.data();
  for (const Piece& piece : pieces) {
    const std::span<float> value = Part(memory[piece.parameter].value, piece);
    if (form == ParameterForm::kFp32) {
      GetFp32(from, value);
    } else if (form == ParameterForm::kBf16) {
      GetBf16(from, value);
    } else {
      difference.resize(value.size());
      sdp4bit::cpu::Decode(from, sdp4bit::kDifferenceGroup, difference);
      for (size_t k = 0; k < value.size(); ++k) value[k] += difference[k];
    }
    from += BytesOf(form, piece);
  }
}

}  // namespace longhaul::replicas
