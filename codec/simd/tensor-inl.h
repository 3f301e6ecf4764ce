// Converts between tensors of any dtype and tiles of fp32, for one target of Highway.
#if defined(LONGHAUL_CODEC_SIMD_TENSOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_SIMD_TENSOR_INL_H_
#undef LONGHAUL_CODEC_SIMD_TENSOR_INL_H_
#else
#define LONGHAUL_CODEC_SIMD_TENSOR_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "codec/codec.h"
#include "codec/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::simd::HWY_NAMESPACE {

// Converts `count` elements of bf16 or fp16 to fp32. `in` is aligned to 2 bytes.
HWY_INLINE void Widen(Dtype dtype, const uint16_t* in, size_t count, float* out) {
  size_t k = 0;
  if (dtype == Dtype::kBf16) {
    for (; k + kLanes <= count; k += kLanes) Store(Bf16ToF32(LoadHalves(in + k)), out + k);
    for (; k < count; ++k) out[k] = codec::Bf16ToF32(in[k]);
  } else {
    for (; k + kLanes <= count; k += kLanes) Store(F16ToF32(LoadHalves(in + k)), out + k);
    for (; k < count; ++k) out[k] = codec::F16ToF32(in[k]);
  }
}

// Converts `count` fp32 numbers to bf16 or fp16, rounded to nearest even.
HWY_INLINE void Narrow(Dtype dtype, const float* in, size_t count, uint16_t* out) {
  size_t k = 0;
  if (dtype == Dtype::kBf16) {
    for (; k + kLanes <= count; k += kLanes) StoreHalves(F32ToBf16(Load(in + k)), out + k);
    for (; k < count; ++k) out[k] = codec::F32ToBf16(in[k]);
  } else {
    for (; k + kLanes <= count; k += kLanes) StoreHalves(F32ToF16(Load(in + k)), out + k);
    for (; k < count; ++k) out[k] = codec::F32ToF16(in[k]);
  }
}

// The positions of the tiles in a tensor. A token has `token_tiles` tiles; the last one is shorter
// if kTile does not divide the channels.
template <size_t kTile>
struct TileGrid {
  explicit TileGrid(const Shape& tensor)
      : shape(tensor),
        token_tiles((tensor.channels + kTile - 1) / kTile),
        whole(tensor.channels % kTile == 0) {}

  struct Place {
    uint64_t offset = 0;  // index in the tensor of the tile's first element
    size_t count = 0;     // the tile's elements without padding
  };
  Place Of(uint32_t sample, uint64_t tile) const {
    const uint64_t first_token = uint64_t{sample} * shape.tokens;
    if (whole) return {first_token * shape.channels + tile * kTile, kTile};
    const uint64_t channel = tile % token_tiles * kTile;
    return {(first_token + tile / token_tiles) * shape.channels + channel,
            std::min<uint64_t>(kTile, shape.channels - channel)};
  }

  Shape shape;
  uint64_t token_tiles;
  bool whole;  // no tile is shorter than kTile, so the tiles of a sample are contiguous
};

// Reads batches of tiles as fp32. `in` and its data must outlive the reader. One thread at a time.
template <size_t kTile>
class TileReader {
 public:
  explicit TileReader(const TensorView& in) : in_(in), grid_(in.shape) {}
  const TileGrid<kTile>& grid() const { return grid_; }

  // Returns tiles first, ..., first + tiles - 1 of a sample as fp32, each padded with zeros to
  // kTile. `tiles` is at most kBatch. The result points to the tensor itself, or to a buffer that
  // the next call overwrites. It is aligned to 4 bytes.
  HWY_INLINE const float* Read(uint32_t sample, uint64_t first, size_t tiles) {
    if (grid_.whole) {
      const auto place = grid_.Of(sample, first);
      if (in_.dtype == Dtype::kF32) return static_cast<const float*>(in_.data) + place.offset;
      Widen(in_.dtype, static_cast<const uint16_t*>(in_.data) + place.offset, tiles * kTile,
            buffer_);
      return buffer_;
    }
    for (size_t tile = 0; tile < tiles; ++tile) {
      const auto place = grid_.Of(sample, first + tile);
      float* const to = buffer_ + tile * kTile;
      if (in_.dtype == Dtype::kF32) {
        std::memcpy(to, static_cast<const float*>(in_.data) + place.offset,
                    place.count * sizeof(float));
      } else {
        Widen(in_.dtype, static_cast<const uint16_t*>(in_.data) + place.offset, place.count, to);
      }
      std::fill(to + place.count, to + kTile, 0.0f);
    }
    return buffer_;
  }

 private:
  const TensorView& in_;
  const TileGrid<kTile> grid_;
  alignas(64) float buffer_[kBatch * kTile];
};

// Writes batches of tiles: fill the memory that At() returns, then call Write(). `out` and its data
// must outlive the writer. One thread at a time.
template <size_t kTile>
class TileWriter {
 public:
  explicit TileWriter(const MutableTensorView& out)
      : out_(out),
        grid_(out.shape),
        limit_(out.dtype == Dtype::kF32    ? std::numeric_limits<float>::max()
               : out.dtype == Dtype::kBf16 ? std::bit_cast<float>(0x7f7f0000u)
                                           : 65504.0f) {}
  const TileGrid<kTile>& grid() const { return grid_; }

  // Returns memory for a batch that begins with tile `first` of the sample: the tensor or a buffer.
  HWY_INLINE float* At(uint32_t sample, uint64_t first) {
    if (grid_.whole && out_.dtype == Dtype::kF32) {
      return static_cast<float*>(out_.data) + grid_.Of(sample, first).offset;
    }
    return buffer_;
  }

  // Apply Clamp to every vector before you store it at At(). A value outside the dtype's range
  // becomes the dtype's largest number with the value's sign. NaNs stay NaNs.
  HWY_INLINE VF Clamp(VF value) const {
    const VF high = Float(limit_);
    const VF low = Float(-limit_);
    value = hn::IfThenElse(hn::Gt(value, high), high, value);
    return hn::IfThenElse(hn::Lt(value, low), low, value);
  }

  // Writes the batch of the last At() to the tensor. `sample` and `first` must be as in that call.
  HWY_INLINE void Write(uint32_t sample, uint64_t first, size_t tiles) {
    if (grid_.whole) {
      if (out_.dtype == Dtype::kF32) return;
      Narrow(out_.dtype, buffer_, tiles * kTile,
             static_cast<uint16_t*>(out_.data) + grid_.Of(sample, first).offset);
      return;
    }
    for (size_t tile = 0; tile < tiles; ++tile) {
      const auto place = grid_.Of(sample, first + tile);
      const float* const from = buffer_ + tile * kTile;
      if (out_.dtype == Dtype::kF32) {
        std::memcpy(static_cast<float*>(out_.data) + place.offset, from,
                    place.count * sizeof(float));
      } else {
        Narrow(out_.dtype, from, place.count, static_cast<uint16_t*>(out_.data) + place.offset);
      }
    }
  }

 private:
  const MutableTensorView& out_;
  const TileGrid<kTile> grid_;
  const float limit_;
  alignas(64) float buffer_[kBatch * kTile];
};

}  // namespace longhaul::codec::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_SIMD_TENSOR_INL_H_
