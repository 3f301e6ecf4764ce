// What the dashboard's page sends to change runs: who sends it, and what (docs/design/formats.md,
// The dashboard's API). A change has to come with a key in its header `Authorization`, which no
// page of another site can set, and no browser sends by itself.
#pragma once

#include <httplib.h>

#include <optional>
#include <string>

#include "base/status.h"
#include "coordinator/http/changes.h"

namespace longhaul::coordinator {

// What a run file of the page may have at most, in bytes.
inline constexpr size_t kMostChangeBytes = 48 << 10;

// The key of a request, and where it comes from. The key is empty if there is none.
Asker AskerOf(const httplib::Request& request);

class ChangeRoutes {
 public:
  // `changes` must outlive this object; null: nothing can be changed.
  explicit ChangeRoutes(Changes* changes) : changes_(changes) {}

  // Serves GET /api/me and /api/submission, and POST /api/submit and /api/stop. The server must
  // outlive its requests.
  void AddTo(httplib::Server* server) const;
  // True if this is a path to which changes are posted.
  static bool IsChange(const std::string& path);
  // Returns who looks: without `needs_key` somebody who may see all, else the key's owner.
  // kUnauthenticated: there is no valid key.
  StatusOr<Viewer> ViewerOf(const Asker& asker, bool needs_key) const;

 private:
  StatusOr<std::string> Me(const httplib::Request& request) const;
  StatusOr<std::string> Submission(const httplib::Request& request) const;
  StatusOr<std::string> Submit(const httplib::Request& request) const;
  StatusOr<std::string> Stop(const httplib::Request& request) const;

  Changes* const changes_;
};

}  // namespace longhaul::coordinator
