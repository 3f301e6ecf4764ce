// The JSON API of the dashboard (docs/design/formats.md, The dashboard's API).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "coordinator/http/curves.h"
#include "coordinator/http/source.h"

namespace longhaul::coordinator {

// Caches answers (and refusals) that many viewers request: makes each at most once in `age`.
// Thread-safe; concurrent requests for the same answer wait for each other.
class Remembered {
 public:
  explicit Remembered(absl::Duration age) : age_(age) {}
  StatusOr<std::string> Get(const std::string& key,
                            const std::function<StatusOr<std::string>()>& make);

 private:
  static constexpr size_t kMost = 64;
  struct Entry {
    std::mutex mutex;  // guards the next two
    std::optional<MonoTime> made;
    StatusOr<std::string> text;
  };
  const absl::Duration age_;
  std::mutex mutex_;  // guards entries_
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

// Every answer is one JSON object on one line. kNotFound: no such run. Thread-safe.
class Api {
 public:
  static constexpr size_t kEvents = 500;  // maximum in one answer
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  // `source` must outlive this object.
  Api(Source* source, std::string version);

  StatusOr<std::string> Overview();
  StatusOr<std::string> Run(const std::string& run);
  StatusOr<std::string> Steps(const std::string& run, const CurveWindow& window);
  StatusOr<std::string> Workers();
  StatusOr<std::string> Events(const std::string& run, uint64_t after);
  StatusOr<std::string> Checkpoints(const std::string& run);
  StatusOr<std::string> Timeline(const std::string& run);

 private:
  Source* const source_;
  const std::string version_;
  CurveBook curves_;
  Remembered quick_;  // answers that the state machine gives at once
  Remembered slow_;   // answers that take longer, or for which workers are asked
};

}  // namespace longhaul::coordinator
