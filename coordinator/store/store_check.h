// Looks through the store once a day for damage, and tells whoever wants to know. A damaged page
// that nobody reads would be found when it is needed.
//
// Threads: one of its own, with a connection of its own, which waits for no writer. It looks at one
// table at a time, so its end waits for one table at most.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul::coordinator {

// Returns kDataLoss with a sentence if a table or an index of the store at `path` is damaged. OK
// also if `stop` returned true before all tables were looked at. Other errors: those of sqlite.h.
Status CheckStore(const std::string& path, const std::function<bool()>& stop);

class StoreCheck {
 public:
  struct Pace {
    absl::Duration first = absl::Hours(2);   // from the start until the first look
    absl::Duration pause = absl::Hours(24);  // between two looks
  };
  using Damaged = std::function<void(const Status& why)>;

  // `damaged`: called on the thread at each look that finds damage, with `held` locked; empty: the
  // log alone says so. `held`: locked during a look, and by whoever replaces the file; null: nobody
  // does. It must outlive this object.
  StoreCheck(std::string path, Pace pace, Damaged damaged = {}, std::mutex* held = nullptr);
  ~StoreCheck();
  StoreCheck(const StoreCheck&) = delete;
  StoreCheck& operator=(const StoreCheck&) = delete;

  // What the newest look found. Thread-safe.
  Status found() const;

 private:
  void Run();
  void Look();
  bool is_closing() const;
  // False: the object is being destroyed.
  bool Sleep(absl::Duration duration);

  const std::string path_;
  const Pace pace_;
  const Damaged damaged_;
  std::mutex* const held_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Status found_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator
