// Turns the adapters of LoRA off for a while, so that a model computes what it computed before it
// was adapted. Preference training compares the two (pair_loss.h).
//
// Internal to worker/stage. Threads: one at a time.
#pragma once

namespace longhaul::worker {

class AdapterSwitch {
 public:
  // Adapters are off until the Off is destroyed. Passes without adapters need no gradients.
  class Off {
   public:
    explicit Off(AdapterSwitch* adapters) : adapters_(adapters), before_(adapters->on_) {
      adapters_->on_ = false;
    }
    ~Off() { adapters_->on_ = before_; }
    Off(const Off&) = delete;
    Off& operator=(const Off&) = delete;

   private:
    AdapterSwitch* const adapters_;
    const bool before_;
  };
  bool on() const { return on_; }

 private:
  bool on_ = true;
};

}  // namespace longhaul::worker
