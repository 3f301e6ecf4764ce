// What kernels of predict share: which rows predict a token, and its value from them.
#ifndef LONGHAUL_CODEC_CUDA_MODULE_PREDICT_ROWS_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_PREDICT_ROWS_CUH_

#include "codec/cuda/module/device_tile.cuh"
#include "codec/predict/arithmetic.h"

namespace longhaul::codec::cuda {

inline constexpr uint64_t kPredictIds = kHeaderBytes + predict::kFrontBytes;

class PredictRows {
 public:
  __device__ explicit PredictRows(const PredictArgs& args) : args_(args) {}

  __device__ uint32_t Tokens() const { return args_.tensor.samples * args_.tensor.tokens; }
  __device__ bool HasPairs() const { return args_.log2_pairs > 0; }
  // A decoder takes the blob's.
  __device__ uint32_t IdOf(uint32_t token) const {
    if (args_.decodes == 0) return args_.ids_dev[token];
    const unsigned char* const section = args_.blob_dev + kPredictIds;
    return args_.id_bytes == 2 ? reinterpret_cast<const uint16_t*>(section)[token]
                               : reinterpret_cast<const uint32_t*>(section)[token];
  }
  __device__ uint32_t PairOf(uint32_t token) const {
    const bool first = token == token / args_.tokens * args_.tokens.value;
    return predict::PairRow(first ? 0 : IdOf(token - 1), IdOf(token), args_.log2_pairs);
  }
  __device__ uint32_t RowOf(uint32_t token, bool of_pairs) const {
    return of_pairs ? PairOf(token) : IdOf(token);
  }
  // Of all rows; `row` is one of pairs, or an id below the vocabulary.
  __device__ uint64_t Place(uint32_t row, bool of_pairs) const {
    return row + (of_pairs ? uint64_t{args_.vocabulary} : 0);
  }
  __device__ float* MeansAt(uint64_t place) const {
    return args_.means_dev + place * args_.tensor.channels;
  }

 private:
  const PredictArgs& args_;
};

// The two rows that predict a token, whose id is below the vocabulary.
struct Predictor {
  __device__ Predictor(const PredictRows& rows, uint32_t token)
      : of_token(rows.MeansAt(rows.Place(rows.IdOf(token), false))),
        of_pair(rows.HasPairs() ? rows.MeansAt(rows.Place(rows.PairOf(token), true)) : nullptr) {}
  __device__ float operator()(uint32_t channel) const {
    return of_pair == nullptr ? of_token[channel] : of_token[channel] + of_pair[channel];
  }
  const float *of_token, *of_pair;
};

// As the CPU's: what is not finite becomes one NaN.
__device__ inline float FiniteOrNan(float value) {
  const bool finite = (__float_as_uint(value) & 0x7fffffff) < 0x7f800000;
  return finite ? value : __uint_as_float(0x7fc00000);
}

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_MODULE_PREDICT_ROWS_CUH_
