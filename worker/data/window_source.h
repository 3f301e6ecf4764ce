// The text that a run is trained on, cut into windows: `context` input tokens, each with the next
// token as its target.
//
// Thread-safe, except Read: one thread at a time.
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
  virtual uint64_t WindowsOf(Text text) const = 0;
  // Reads a window: `context` inputs and as many targets. Target -1: its loss does not count. May
  // block while chunks are fetched. kUnavailable, kDataLoss: the data cannot be had.
  virtual Status Read(Text text, uint64_t window, std::span<int32_t> inputs,
                      std::span<int32_t> targets) = 0;
  // Hint: these windows are read next, in this order.
  virtual void Expect(Text text, std::span<const uint64_t> windows) = 0;
  // The chunks of data sets, which other workers may need as well; null: a token file.
  virtual std::shared_ptr<SetChunks> chunks() const { return nullptr; }
};

// Windows of a complete token file.
std::unique_ptr<WindowSource> WindowsOfFile(std::shared_ptr<const TokenFile> file,
                                            uint32_t context);

}  // namespace longhaul::worker
