// The text that a run is trained on, cut into windows. A window has `context` input tokens; the
// target of each input is the next token.
//
// Thread-safe, except that only one thread at a time may call Read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "run/tokens/token_file.h"

namespace longhaul::worker {

enum class Text : uint8_t { kTraining, kValidation };

class SetChunks;

class WindowSource {
 public:
  virtual ~WindowSource() = default;
  // Number of windows of the text.
  virtual uint64_t WindowsOf(Text text) const = 0;
  // Reads a window. `window`: its index, below WindowsOf(text). `inputs` and `targets` must have
  // `context` elements. A target is -1 (kNoTarget) where the loss does not count. May block while
  // chunks are fetched. kUnavailable: a place with the data cannot be reached. kNotFound or
  // kDataLoss: no place has the data as they were when the run was submitted.
  virtual Status Read(Text text, uint64_t window, std::span<int32_t> inputs,
                      std::span<int32_t> targets) = 0;
  // Announces the windows that will be read next, in this order, so that their chunks can be
  // fetched in advance. Only a hint. Returns at once.
  virtual void Expect(Text text, std::span<const uint64_t> windows) = 0;
  // Returns the chunks of the data sets, which other workers may ask for; null if the text is a
  // token file.
  virtual std::shared_ptr<SetChunks> chunks() const { return nullptr; }
};

// Makes a source for the windows of a token file, which is not null. The result's Read never fails.
std::unique_ptr<WindowSource> WindowsOfFile(std::shared_ptr<const TokenFile> file,
                                            uint32_t context);

}  // namespace longhaul::worker
