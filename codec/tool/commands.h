// The commands of the program longhaul-codec (programs/longhaul_codec.cc parses its flags). Each
// command returns the text for standard output.
//
// Errors: those of reading and writing files, of ParseNpy (npy.h) and of Codec (codec.h). The
// caller must check the codec strings before. Threads: one command at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/python/host.h"

namespace longhaul::codec {

// The flags of all commands. Each command uses only some of them.
struct ToolOptions {
  std::string codec = "tah";
  std::string input, output;
  std::vector<std::string> inputs, codecs;  // to compare; empty: generated tensors, default codecs
  std::string previous;                     // file of the array that was sent before; empty: none
  std::optional<Dtype> dtype;               // of the input array or, to decode, of the output
  uint64_t seed = 0;                        // of stochastic rounding and generated tensors
  // To bench: the size of the tensor, how often each call is timed, and where the codec runs.
  uint64_t elements = uint64_t{1} << 24;
  uint32_t channels = 1024;
  uint32_t repeats = 9;
  std::string device = "cpu";  // or "cuda", "cuda:N"
  uint32_t samples = 1;
  std::string data = "outliers";  // or "normal"
  std::string ids = "random";     // or "equal": the token ids for the codec predict
  uint32_t vocabulary = 50257;    // number of different token ids
  uint32_t threads = 1;           // to bench on a CPU
  std::string kernels;            // instruction set for UseKernelTarget; empty: the best one
  bool summary = false;           // one table over all tensors
  bool json = false;
  // Runs `codec` and `codecs` that are classes of Python. Null: there are none. Not owned.
  const python::Host* python = nullptr;
};

// Returns N of "cuda:N", 0 for "cuda", else nullopt.
std::optional<uint32_t> CudaIndex(const std::string& device);

// EncodeFile writes a .npy file as a blob, and DecodeFile a blob as a .npy file.
StatusOr<std::string> EncodeFile(const ToolOptions& options);
StatusOr<std::string> DecodeFile(const ToolOptions& options);
// Describes a blob: header and sections.
StatusOr<std::string> InspectFile(const ToolOptions& options);
// Returns the errors of one codec on one array.
StatusOr<std::string> MeasureError(const ToolOptions& options);
// Returns a table of the errors of `codecs` on `inputs`.
StatusOr<std::string> CompareCodecs(const ToolOptions& options);
// As CompareCodecs, for variants of tah and taco. Codec strings cannot name some of them.
StatusOr<std::string> Ablate(const ToolOptions& options);
// Measures a codec's speed. Calls BenchCuda if `device` is a GPU.
StatusOr<std::string> Bench(const ToolOptions& options);
StatusOr<std::string> BenchCuda(const ToolOptions& options);

}  // namespace longhaul::codec
