// The part of a transport that runs on its loop: the links that are opening, and the open links.
//
// Threads: all on the loop. Callbacks run after the call that caused them has returned. Exception:
// a `done` that gets kCancelled, or an error of the arguments, runs inside the call.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/core/handshake.h"
#include "transport/p2p/core/link_core.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

class Hub : public std::enable_shared_from_this<Hub> {
 public:
  using OpenDone = std::function<void(StatusOr<std::shared_ptr<LinkCore>>)>;

  Hub(std::shared_ptr<EventLoop> loop, std::unique_ptr<Backend> backend);
  // Starts the backend. Returns where the backend listens. Errors are those of Backend::Start.
  StatusOr<std::string> Start();

  // Like the methods of the same names in Transport (link.h). `why`: the message of kCancelled.
  void Expect(const LinkKey& key, std::string secret, std::shared_ptr<LinkHandler> handler,
              const LinkOptions& options, Deadline deadline, OpenDone done);
  void Dial(const std::vector<std::string>& addresses, const LinkKey& key, std::string secret,
            std::shared_ptr<LinkHandler> handler, const LinkOptions& options, Deadline deadline,
            OpenDone done);
  void Readdress(const LinkKey& key, const std::vector<std::string>& addresses);
  void Cancel(const LinkKey& key, std::string_view why);

  // Ends all links and the backend; calls `done` when nothing is left on the loop. Call it once.
  void Shutdown(std::function<void()> done);

 private:
  struct Pending {
    LinkKey key;
    std::string secret;
    std::shared_ptr<LinkHandler> handler;
    LinkOptions options;
    std::vector<std::string> addresses;  // empty: expected, not dialled
    OpenDone done;
    // While these exist, the peer can come: results of Backend::WaitAt, or of Backend::AdmitPeers.
    std::vector<std::shared_ptr<void>> waits = {};
  };
  Status Check(const LinkKey& key, const LinkOptions& options) const;
  // Lets the peer come until the result is destroyed: from these addresses, or to them if this
  // backend does not listen.
  StatusOr<std::vector<std::shared_ptr<void>>> LetCome(const std::vector<std::string>& addresses);
  // Waits at each address until the result is destroyed. Fails only if no address can be used.
  StatusOr<std::vector<std::shared_ptr<void>>> WaitAtAny(const std::vector<std::string>& addresses);
  void Open(Pending& pending, bool dialled, StatusOr<OpenedLink> opened);
  // Prepares an open link for a break: to dial again, or to take back the side that dials.
  void PrepareReturn(const Pending& pending, bool dialled, LinkCore::Init* init);
  void CheckEmpty();

  const std::shared_ptr<EventLoop> loop_;
  std::unique_ptr<Backend> backend_;
  const std::shared_ptr<Acceptor> acceptor_;
  std::map<LinkKey, std::shared_ptr<Pending>> expects_;
  std::map<LinkKey, std::pair<std::shared_ptr<Dialer>, std::shared_ptr<Pending>>> dials_;
  // For a link that was dialled: the result of Backend::AdmitPeers for its peer's addresses.
  std::map<std::shared_ptr<LinkCore>, std::shared_ptr<void>> links_;
  bool listens_ = false;
  std::function<void()> on_empty_;
};

}  // namespace longhaul::transport::internal
