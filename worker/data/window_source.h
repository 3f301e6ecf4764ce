// What a run is trained on, as windows: `context` tokens, each with the token that follows it.
//
// Thread-safe, but for Read: one thread at a time.
#ifndef LONGHAUL_WORKER_DATA_WINDOW_SOURCE_H_
#define LONGHAUL_WORKER_DATA_WINDOW_SOURCE_H_

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
  // Of `window`: `context` inputs and as many targets. A target of -1: its loss does not count.
  // May wait for what is fetched. kUnavailable, kDataLoss: it cannot be had.
  virtual Status Read(Text text, uint64_t window, std::span<int32_t> inputs,
                      std::span<int32_t> targets) = 0;
  // These are read next, in this order; a hint.
  virtual void Expect(Text text, std::span<const uint64_t> windows) = 0;
  // What data sets' windows are made of, which other workers may need too; null: a token file.
  virtual std::shared_ptr<SetChunks> chunks() const { return nullptr; }
};

// A token file, which is there as a whole.
std::unique_ptr<WindowSource> WindowsOfFile(std::shared_ptr<const TokenFile> file,
                                            uint32_t context);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_DATA_WINDOW_SOURCE_H_
