// The token file: a tokenized text. The first stage maps it into memory to read inputs, the last
// stage to read labels.
//
//   offset size  field (little-endian)
//        0    8  magic "LHTOKENS"
//        8    4  version (1)
//       12    4  bytes per token: 2 or 4
//       16    8  tokens
//       24    8  validation tokens, at the end of the file
//       32    4  vocabulary
//       36   28  tokenizer, zero-padded
//       64   32  SHA-256 of the tokens' bytes
//       96       tokens
//
// A window is `context` + 1 consecutive tokens; windows begin every `context` tokens. The
// validation part is the end of the file, the training part the rest. This header also defines the
// order of training: which window is sequence k of a run. The order depends only on the seed and
// the number of windows, so the first and the last stage need not exchange it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace longhaul {

inline constexpr uint32_t kTokenFileVersion = 1;

struct TokenFileInfo {
  uint64_t tokens = 0;
  uint64_t validation_tokens = 0;
  uint32_t vocabulary = 0;
  std::string tokenizer;
};

// The interface of tokenizers: text in pieces, token ids out.
class Tokenizer {
 public:
  static std::vector<std::string> Names();  // of all tokenizers
  // Returns the tokenizer; never null. kInvalidArgument: unknown name.
  static StatusOr<std::unique_ptr<Tokenizer>> Create(std::string_view name);
  virtual ~Tokenizer() = default;
  virtual uint32_t vocabulary() const = 0;  // number of different ids
  // Returns how many leading bytes of `text` can be encoded on their own without changing the ids.
  // So a file larger than memory can be tokenized in pieces. `text` must not be empty. `is_rest`:
  // `text` is the whole rest of the file; if false, 0 means that more of the file is needed.
  virtual size_t PieceSize(std::string_view text, bool is_rest) const = 0;
  // Appends the ids of `text`, which is one piece, to `tokens`.
  virtual void Encode(std::string_view text, std::vector<uint32_t>* tokens) const = 0;
};

// Tokenizes the text files `files` one after the other, and writes the token file atomically to
// `path`. The last `validation_share` (0 to below 1) of the tokens, rounded down, become the
// validation part. kInvalidArgument: unknown tokenizer, wrong share, or a file is a folder. Other
// errors: a file cannot be read or written; `path` then stays as it was.
StatusOr<TokenFileInfo> WriteTokenFile(const std::vector<std::string>& files,
                                       std::string_view tokenizer, double validation_share,
                                       const std::string& path);

// A mapped token file. Thread-safe.
class TokenFile {
 public:
  // Maps the file and checks its header and size; if `verify`, also the hash and every id, which
  // reads the whole file. kInvalidArgument: the file is not a token file. kDataLoss: the hash is
  // wrong. If the file cannot be opened, returns the error of MappedFile::Open.
  static StatusOr<TokenFile> Open(const std::string& path, bool verify);

  const TokenFileInfo& info() const { return info_; }
  // Return the number of windows in the training part and in the validation part.
  uint64_t TrainingWindows(uint32_t context) const;
  uint64_t ValidationWindows(uint32_t context) const;
  // Reads a window's inputs, which are its first `context` tokens, and its targets, which are its
  // last `context` tokens. Both spans must have `context` elements. `window` counts from 0 within
  // the part; aborts if there is no such window. If the file was opened without `verify`, ids may
  // be outside the vocabulary.
  void ReadTrainingWindow(uint64_t window, uint32_t context, std::span<int32_t> inputs,
                          std::span<int32_t> targets) const;
  void ReadValidationWindow(uint64_t window, uint32_t context, std::span<int32_t> inputs,
                            std::span<int32_t> targets) const;

 private:
  void ReadAt(uint64_t first_token, uint32_t context, std::span<int32_t> inputs,
              std::span<int32_t> targets) const;
  TokenFileInfo info_;
  MappedFile file_;
  uint32_t bytes_per_token_ = 2;
};

// Returns the number of windows in `tokens` tokens; 0 if `context` is 0.
uint64_t WindowsOf(uint64_t tokens, uint32_t context);

// Returns the window that sequence `k` of a run reads. k counts the rows of all microbatches:
// global microbatch index x microbatch_size + row. Pass k / windows over the data reads every
// window once, in an order that depends on the seed and the pass. `windows`: at least 1, else
// aborts.
uint64_t TrainingWindowOf(uint64_t seed, uint64_t k, uint64_t windows);

}  // namespace longhaul
