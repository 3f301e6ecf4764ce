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
#include "coordinator/http/changes.h"
#include "coordinator/http/curves.h"
#include "coordinator/http/source.h"

namespace longhaul::coordinator {

// Caches answers, errors included, that many viewers request. An answer is returned again until it
// is older than `age`; then it is made anew. Thread-safe: concurrent requests for the same key wait
// for one call of `make`.
class Remembered {
 public:
  explicit Remembered(absl::Duration age) : age_(age) {}
  StatusOr<std::string> Get(const std::string& key,
                            const std::function<StatusOr<std::string>()>& make);

 private:
  static constexpr size_t kMost = 64;  // maximum number of answers; the next one drops them all
  struct Entry {
    std::mutex mutex;  // guards the next two
    std::optional<MonoTime> made;
    StatusOr<std::string> text;
  };
  const absl::Duration age_;
  std::mutex mutex_;  // guards entries_
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

// Answers the dashboard's requests. Every answer is one JSON object on one line. `run` is a run's
// id or name. `viewer`: who asks, and is shown runs that the viewer may see. kNotFound: the viewer
// may see no such run. Other errors are those of the Source. Thread-safe. Answers may be about a
// second old.
class Api {
 public:
  static constexpr size_t kEvents = 500;  // maximum in one answer
  // Checkpoints and Timeline wait at most this long, and then return kDeadlineExceeded.
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  // `source` must outlive this object.
  Api(Source* source, std::string version);

  StatusOr<std::string> Overview(const Viewer& viewer = {});
  StatusOr<std::string> Run(const std::string& run, const Viewer& viewer = {});
  StatusOr<std::string> Steps(const std::string& run, const CurveWindow& window,
                              const Viewer& viewer = {});
  StatusOr<std::string> Workers();
  // Returns the newest events whose sequence number is above `after`, at most kEvents, oldest
  // first. If `run` is empty, returns events of all runs; kPermissionDenied: the viewer may not see
  // all.
  StatusOr<std::string> Events(const std::string& run, uint64_t after, const Viewer& viewer = {});
  StatusOr<std::string> Checkpoints(const std::string& run, const Viewer& viewer = {});
  StatusOr<std::string> Timeline(const std::string& run, const Viewer& viewer = {});

 private:
  // Returns what names the run for the Source. kNotFound: the viewer may not see it.
  StatusOr<std::string> Seen(const std::string& run, const Viewer& viewer);

  Source* const source_;
  const std::string version_;
  CurveBook curves_;
  Remembered quick_;  // answers that are made at once; kept for a shorter time
  Remembered slow_;   // answers that take longer, or for which workers are asked
};

}  // namespace longhaul::coordinator
