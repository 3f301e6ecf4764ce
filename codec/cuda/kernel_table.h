// The codecs' kernels that liblonghaul_cuda.so offers: plain types, compiled on both sides of
// dlopen (base/cuda/table.h). Programs use cuda_codec.h, which checks the arguments.
//
// Every function queues work on `stream` (a cudaStream_t of `device`), allocates nothing, waits for
// nothing, may be captured in a graph, and returns a code of the CUDA runtime, 0 for success.
#ifndef LONGHAUL_CODEC_CUDA_KERNEL_TABLE_H_
#define LONGHAUL_CODEC_CUDA_KERNEL_TABLE_H_

#include <cstdint>

#include "codec/aqsgd/arithmetic.h"

namespace longhaul::codec::cuda {

// Device memory; dtype as in the blob's header (1 fp32, 2 fp16, 3 bf16). At most 2^32 elements.
struct TensorArgs {
  void* data_dev;
  uint32_t dtype;
  uint32_t samples, tokens, channels;
};

// The header of a blob whose count of non-finite tiles is 0: encoders add to it.
struct HeaderArgs {
  uint64_t words[8];
};

// A divisor of 32-bit numbers, with 2^64 / value rounded up (0 for 1): kernels divide by it with
// two multiplications.
struct Divisor {
  uint32_t value;
  uint64_t reciprocal;
};
inline Divisor MakeDivisor(uint64_t value) {
  return {static_cast<uint32_t>(value), value == 1 ? 0 : ~uint64_t{0} / value + 1};
}

struct PlainArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t wire_dtype;
  unsigned char* blob_dev;
};

// Offsets count from the start of the payload, which follows the header.
struct FixedArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t bits, tile, stochastic;
  uint32_t noise[4];  // RoundingNoise::block()
  Divisor tiles_per_token, tokens;
  uint64_t scales, codes, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: FixedScratch, aligned to 64 bytes
  uint32_t* fault_dev;         // decode: or-ed with 1 where a sample's exponent is out of range
};

struct TahArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t tile, stochastic;
  uint32_t noise[4];
  float tau;
  int32_t top_exponent;
  // tah::Layout: of a token, of an allocation tile, of a sample.
  Divisor token_allocs, alloc_tiles;
  uint32_t token_tiles, pivot_bits;
  uint64_t tiles, allocs, fours, pivot_bytes, precision_bytes;
  uint64_t scales, zeros, pivots, precision, codes, fourth_bits, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: TahScratch, aligned to 64 bytes
  // decode: or-ed with 1 where an exponent or the number of precision bits is impossible
  uint32_t* fault_dev;
};

struct GaussArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t bits, block;
  uint32_t last_block;  // elements of a token's last block
  // Of the tensor: the blocks of `block` elements, and tokens' last ones where those are shorter.
  uint64_t whole_blocks, last_blocks;
  Divisor whole_of_token;  // the former in a token; 1 where there is none
  Divisor blocks_of_token, tokens;
  uint64_t token_bytes;
  uint64_t scales, codes, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: GaussScratch, aligned to 64 bytes
  uint32_t* fault_dev;         // decode: or-ed with 1 where a sample's exponent is out of range
};

struct AqsgdArgs {
  TensorArgs tensor;
  HeaderArgs header;  // encode: without the payload's bytes
  uint32_t bits;
  Divisor tiles_per_token, tokens;
  // aqsgd::Layout
  uint64_t checks, kinds, exponents, variable, scales_bytes, whole_bytes, difference_bytes;
  uint64_t record_bytes;
  uint64_t payload_bytes;  // decode: of the blob
  unsigned char* blob_dev;
  // Of the tensor's samples, in its order; null: nothing is remembered.
  const aqsgd::Entry* entries_dev;
  unsigned char* records_dev;
  unsigned char* scratch_dev;  // AqsgdScratch, aligned to 64 bytes
  uint32_t* fault_dev;         // decode: or-ed with 1 where the blob is not what a sender may send
};

struct ZipArgs {
  TensorArgs tensor;
  HeaderArgs header;  // encode: the payload's bytes are those of the elements
  // zip::Layout
  uint64_t elements, groups;
  uint64_t lows, signs, codes, plane_bytes, escapes, raw, most_escapes;
  uint32_t may_be_smaller;
  // decode: of the blob, which is not the elements themselves; 0: what the blob's header says, and
  // at most `most_payload_bytes`, which are there
  uint64_t payload_bytes, most_payload_bytes;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: ZipScratch, aligned to 64 bytes
  // decode: or-ed with kFaultContents where the escapes are not what the codes say, with kFaultCut
  // where not all of the blob is there; then nothing is decoded
  uint32_t* fault_dev;
};
inline constexpr uint32_t kFaultContents = 1, kFaultCut = 2;

// Elements and a payload of taco, without a header around it.
struct TacoFlatArgs {
  void* elements_dev;
  uint32_t dtype;
  uint32_t format, block;      // taco::Params
  uint64_t elements;           // more than 0
  uint64_t blocks, codes;      // taco::Layout
  float largest, unit;         // taco::LargestNumber, taco::UnitOf
  unsigned char* payload_dev;  // aligned to 16
  // encode: blocks with a NaN or an infinity are added to it; null: they are not counted.
  unsigned long long* nonfinite_dev;
};

struct TacoArgs {
  TacoFlatArgs flat;  // its payload follows the header; encode: counts into the header
  HeaderArgs header;  // encode
  unsigned char* blob_dev;
};

inline constexpr uint32_t kTacoMostParts = 64;
struct TacoSumArgs {
  // parts[own] are elements, all others payloads.
  const void* parts_dev[kTacoMostParts];
  uint32_t parts, own;
  // elements_dev: the output; payload_dev: of the sum, null: it is not encoded.
  TacoFlatArgs flat;
};

// What predict's tables are on a device: means, then counts, of the rows of tokens and those of
// pairs (predict/tables.h), and this.
struct PredictState {
  static constexpr uint32_t kSums = 64;
  uint64_t check;
  // Of what was learned since `check`: the parts of NextCheck's sum. The next call adds them up.
  uint32_t learned;
  uint32_t sums[kSums];
};

struct PredictArgs {
  TensorArgs tensor;  // encode: read; decode: written
  HeaderArgs header;  // encode: without the payload's bytes
  HeaderArgs within;  // decode: of the other codec's blob, but for its count of tiles
  uint32_t log2_pairs, prior;
  float rate;
  uint32_t kind, id_bytes;  // predict::Front; the check is on the device
  uint32_t vocabulary;
  Divisor tokens;
  uint64_t other;  // predict::OtherOffset
  unsigned char* blob_dev;
  // A tensor's ids. Decode: those that the blob must have, or null.
  const uint32_t* ids_dev;
  // Null for Kind::kPlain.
  float* means_dev;
  uint32_t* counts_dev;
  PredictState* state_dev;
  float* values_dev;           // r, r' and x', one after the other
  float* differences_dev;      // x' - A[t], where there are pairs
  unsigned char* scratch_dev;  // PredictScratch, aligned to 64 bytes
  // Begins as 0; or-ed with kFaultContents or kFaultTables: nothing is learned. Encode: of the
  // scratch.
  uint32_t* fault_dev;
  uint32_t decodes;
};
inline constexpr uint32_t kFaultTables = 4;

// A section of codec/sdp4bit, aligned to 16, and its numbers.
struct Sdp4bitArgs {
  float* values_dev;
  uint64_t count;  // more than 0
  uint32_t group;  // 128 or 2048
  uint32_t stochastic;
  uint32_t noise[4];
  uint64_t first;  // number of values[0] in the noise, a multiple of 64
  unsigned char* section_dev;
};
// The mean of sections that are transformed, in their order; the transform of parts[own], numbers
// themselves, is taken here.
inline constexpr uint32_t kSdp4bitMostParts = 64;
struct Sdp4bitSumArgs {
  const void* parts_dev[kSdp4bitMostParts];
  uint32_t parts, own;
  uint64_t count;  // of numbers, more than 0; sections have up to 31 more
  float* out_dev;
};

// codec/tagc/select.h for values of one piece. Scratch of TagcSelectScratch, aligned to 16.
struct TagcSelectArgs {
  const float* values_dev;
  uint64_t count, keep;  // more than 0
  unsigned long long* bitmap_dev;
  unsigned char* scratch_dev;
};
struct KernelTable {
  int (*write_header)(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream);
  int (*encode_plain)(int device, const PlainArgs* args, void* stream);
  int (*decode_plain)(int device, const PlainArgs* args, void* stream);
  int (*encode_fixed)(int device, const FixedArgs* args, void* stream);
  int (*decode_fixed)(int device, const FixedArgs* args, void* stream);
  int (*encode_tah)(int device, const TahArgs* args, void* stream);
  int (*decode_tah)(int device, const TahArgs* args, void* stream);
  int (*encode_gauss)(int device, const GaussArgs* args, void* stream);
  int (*decode_gauss)(int device, const GaussArgs* args, void* stream);
  int (*encode_aqsgd)(int device, const AqsgdArgs* args, void* stream);
  int (*decode_aqsgd)(int device, const AqsgdArgs* args, void* stream);
  int (*encode_zip)(int device, const ZipArgs* args, void* stream);
  int (*decode_zip)(int device, const ZipArgs* args, void* stream);
  int (*encode_taco)(int device, const TacoArgs* args, void* stream);
  int (*decode_taco)(int device, const TacoArgs* args, void* stream);
  // Before the other codec's encoder or decoder: the front, r, and which tokens share a row. Behind
  // them: x', and what rows of one token learn. Then the other rows learn.
  int (*begin_predict)(int device, const PredictArgs* args, void* stream);
  int (*finish_predict)(int device, const PredictArgs* args, void* stream);
  int (*learn_predict)(int device, const PredictArgs* args, void* stream);
  // codec/taco/flat.h's functions; cuda_taco.h checks the arguments.
  int (*taco_encode_flat)(int device, const TacoFlatArgs* args, void* stream);
  int (*taco_decode_flat)(int device, const TacoFlatArgs* args, void* stream);
  int (*taco_reduce)(int device, const TacoSumArgs* args, void* stream);
  // cuda_sdp4bit.h and cuda_tagc.h check the arguments.
  int (*sdp4bit_encode)(int device, const Sdp4bitArgs* args, void* stream);
  int (*sdp4bit_decode)(int device, const Sdp4bitArgs* args, void* stream);
  int (*sdp4bit_transform)(int device, float* values_dev, uint64_t count, bool back, void* stream);
  int (*sdp4bit_mean)(int device, const Sdp4bitSumArgs* args, void* stream);
  int (*tagc_select)(int device, const TagcSelectArgs* args, void* stream);
};

// Words for a sample's largest magnitude, no two in one sector of the cache. With one word all
// warps would queue at it.
inline constexpr uint32_t kMaximumPlaces = 16;
inline constexpr uint64_t kMaximumStride = 8;  // uint32
constexpr uint64_t MaximaBytes(uint64_t samples) {
  return samples * kMaximumPlaces * kMaximumStride * 4;
}

// Where encoders keep data between their phases: offsets in the workspace. Bytes before `zeroed`
// begin as zeros.
struct FixedScratch {
  constexpr FixedScratch(uint64_t samples, uint64_t tiles)
      : done(8),
        maxima(done + 8 * samples),
        zeroed(maxima + MaximaBytes(samples)),
        tile_maxima(zeroed),
        end(tile_maxima + 4 * tiles) {}
  uint64_t done;  // uint32, two a sample
  // Bits of the largest finite magnitude: MaximaBytes, of which the general encoder uses one uint32
  // a sample.
  uint64_t maxima;
  uint64_t zeroed;
  // Bits of the largest magnitude, one a tile of the tensor: uint16 of bf16, uint32 of fp32.
  uint64_t tile_maxima;
  uint64_t end;
};

// Groups of a block of an encoder's first kernel, and of its last one.
inline constexpr uint64_t kZipGroups = 8, kZipFinishedGroups = 32;
// Groups whose escapes are counted together, and escapes of a group that have a slot.
inline constexpr uint64_t kZipCounted = 512, kZipSlot = 64;
// Bytes before `zeroed` begin as zeros.
struct ZipScratch {
  constexpr explicit ZipScratch(uint64_t groups)
      : sums(16),
        zeroed(sums + 8 * ((groups + kZipCounted - 1) / kZipCounted)),
        slots((zeroed + 63) / 64 * 64),
        counts(slots + kZipSlot * groups),
        end(counts + 4 * groups) {}
  uint64_t nonfinite = 8;  // uint64: elements
  uint64_t sums;           // uint64: escapes of kZipCounted groups
  uint64_t zeroed;
  uint64_t slots;   // of each group its first kZipSlot escapes
  uint64_t counts;  // uint32: of each group
  uint64_t end;
};
constexpr uint64_t ZipScratchBytes(uint64_t groups) {
  return (ZipScratch(groups).end + 63) / 64 * 64;
}

// Allocation tiles are handled in groups of this many.
inline constexpr uint32_t kTahGroup = 256;
// Tiles of a warp that has one tile for each lane.
inline constexpr uint32_t kTahRun = 32;
inline constexpr uint32_t kTahBins = 4096;

struct TahScratch {
  constexpr TahScratch(uint64_t samples, uint64_t allocs)
      : done(8),
        maxima((done + 12 * samples + 127) / 128 * 128),
        candidate_counts(maxima + MaximaBytes(samples)),
        group_counts(candidate_counts + 4 * samples),
        histograms((group_counts + 4 * samples * Groups(allocs) + 15) / 16 * 16),
        zeroed(histograms + samples * kTahBins * 4),
        thresholds((zeroed + 7) / 8 * 8),
        bins(thresholds + 8 * samples),
        guesses((bins + 8 * samples + 15) / 16 * 16),
        candidates(guesses + 16 * samples),
        guessed(candidates + 8 * samples * allocs),
        fourths(guessed + 8 * samples * Runs(allocs)),
        entropies(fourths + 8 * samples * allocs),
        end(entropies + 4 * samples * allocs) {}
  static constexpr uint64_t Groups(uint64_t allocs) { return (allocs + kTahGroup - 1) / kTahGroup; }
  static constexpr uint64_t Runs(uint64_t allocs) { return (allocs + kTahRun - 1) / kTahRun; }
  // The first 8 bytes: what was taken of the work.
  uint64_t done;              // uint32, three a sample
  uint64_t maxima;            // as above
  uint64_t candidate_counts;  // uint32, one a sample
  uint64_t group_counts;      // uint32, one a group: with 4 bits, then those of all groups before
  uint64_t histograms;        // uint32, kTahBins a sample: allocation tiles by entropy
  uint64_t zeroed;
  uint64_t thresholds;  // uint64, one a sample: 4 bits at this sort key and below
  uint64_t bins;        // ThresholdBin, one a sample
  uint64_t guesses;     // TahGuess, one a sample
  uint64_t candidates;  // uint64, places for all: sort keys of those in bins about the threshold
  uint64_t guessed;     // GuessedRun, one a run
  uint64_t fourths;     // uint64, one an allocation tile: its fourth plane, where it was guessed
  uint64_t entropies;   // float, one an allocation tile
  uint64_t end;
};

struct GaussScratch {
  constexpr GaussScratch(uint64_t samples, uint64_t blocks)
      : largest(0), zeroed(MaximaBytes(samples)), indexes(zeroed), end(indexes + 2 * blocks) {}
  // MaximaBytes: the largest q of a sample's blocks, with an offset; 0: none of them has a scale.
  uint64_t largest;
  uint64_t zeroed;
  uint64_t indexes;  // int16, q of every block of the tensor
  uint64_t end;
};

struct AqsgdScratch {
  constexpr AqsgdScratch(uint64_t samples, uint64_t channels)
      : nonfinite(0),
        largest(nonfinite + 8 * samples),
        largest_difference(largest + 4 * samples),
        maxima(largest_difference + 4 * samples),
        zeroed(maxima + 4 * samples * channels),
        bodies((zeroed + 7) / 8 * 8),
        kinds(bodies + 8 * samples),
        exponents(kinds + 4 * samples),
        scales((exponents + 4 * samples + 15) / 16 * 16),
        reciprocals(scales + 4 * Padded(channels)),
        end(reciprocals + 4 * Padded(channels)) {}
  static constexpr uint64_t Padded(uint64_t channels) {
    return (channels + aqsgd::kTile - 1) / aqsgd::kTile * aqsgd::kTile;
  }
  // One a sample: elements (uint64), bits of the largest finite |x| and of the largest |d|
  // (uint32).
  uint64_t nonfinite, largest, largest_difference;
  uint64_t maxima;  // uint32, one a channel of each sample: bits of the largest |d|
  uint64_t zeroed;
  uint64_t bodies;               // uint64, one a sample: where in the payload it begins
  uint64_t kinds, exponents;     // uint32 and int32, one a sample
  uint64_t scales, reciprocals;  // float, one a channel and padding up to whole tiles
  uint64_t end;
};

// Of a tensor's tokens, and then of its pairs: arrays of two numbers a token.
struct PredictScratch {
  constexpr explicit PredictScratch(uint64_t tokens)
      : repeats(64),
        counts(repeats + 8 * tokens),
        teaches(counts + 8 * tokens),
        end(teaches + 4 * tokens) {}
  uint64_t fault = 0;  // uint32
  uint64_t repeats;    // uint32: tokens with this one's row, with kPredictAgain where one is before
  uint64_t counts;     // uint32: of that row so far
  uint64_t teaches;    // uint32, one a token
  uint64_t end;
};
inline constexpr uint32_t kPredictAgain = 1u << 31;
inline uint64_t PredictScratchBytes(uint64_t tokens) {
  return (PredictScratch(tokens).end + 63) / 64 * 64;
}
// Tokens with the same row are found by comparing each with each.
inline constexpr uint64_t kMostPredictTokens = 1 << 17;

// Elements of a block of the kernels that choose.
inline constexpr uint64_t kTagcRun = 2048;
inline constexpr uint32_t kTagcBins = 2048;
struct TagcSelectScratch {
  constexpr explicit TagcSelectScratch(uint64_t count)
      : histogram(16),
        equal(histogram + 4 * kTagcBins),
        end(equal + 4 * ((count + kTagcRun - 1) / kTagcRun)) {}
  // The first 16 bytes: TagcChoice.
  uint64_t histogram;
  // uint32 of each run: its elements of the threshold's magnitude; then those in the runs before.
  uint64_t equal;
  uint64_t end;
};
inline uint64_t FixedScratchBytes(uint32_t samples, uint64_t tiles) {
  return (FixedScratch(samples, tiles).end + 63) / 64 * 64;
}
inline uint64_t TahScratchBytes(uint32_t samples, uint64_t allocs) {
  return (TahScratch(samples, allocs).end + 63) / 64 * 64;
}
inline uint64_t GaussScratchBytes(uint32_t samples, uint64_t blocks) {
  return (GaussScratch(samples, blocks).end + 63) / 64 * 64;
}

inline uint64_t AqsgdScratchBytes(uint32_t samples, uint32_t channels) {
  return (AqsgdScratch(samples, channels).end + 63) / 64 * 64;
}

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_KERNEL_TABLE_H_
