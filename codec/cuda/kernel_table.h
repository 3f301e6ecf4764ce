// The kernels of the codecs as liblonghaul_cuda.so offers them: plain types, compiled on both sides
// of dlopen (base/cuda/table.h). Programs use cuda_codec.h, which checks what is passed.
//
// Every function queues work on `stream` (a cudaStream_t of `device`), allocates nothing, waits for
// nothing, may be captured in a graph, and returns a code of the CUDA runtime, 0 for success.
#ifndef LONGHAUL_CODEC_CUDA_KERNEL_TABLE_H_
#define LONGHAUL_CODEC_CUDA_KERNEL_TABLE_H_

#include <cstdint>

namespace longhaul::codec::cuda {

// Device memory; dtype as in the blob's header (1 fp32, 2 fp16, 3 bf16).
struct TensorArgs {
  void* data_dev;
  uint32_t dtype;
  uint32_t samples, tokens, channels;
};

// The header of a blob whose count of non-finite tiles is 0: encoders add to it.
struct HeaderArgs {
  uint64_t words[8];
};

struct PlainArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t wire_dtype;
  unsigned char* blob_dev;
};

// Offsets from the start of the payload, which follows the header.
struct FixedArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t bits, tile, stochastic;
  uint32_t noise[4];  // RoundingNoise::block()
  uint64_t tiles_per_token, tiles, scales, codes, end;
  unsigned char* blob_dev;
  uint32_t* scratch_dev;  // encode: a word a sample
  uint32_t* fault_dev;    // decode: or-ed with 1 where a sample's exponent is out of range
};

struct KernelTable {
  int (*write_header)(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream);
  int (*encode_plain)(int device, const PlainArgs* args, void* stream);
  int (*decode_plain)(int device, const PlainArgs* args, void* stream);
  int (*encode_fixed)(int device, const FixedArgs* args, void* stream);
  int (*decode_fixed)(int device, const FixedArgs* args, void* stream);
};

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_KERNEL_TABLE_H_
