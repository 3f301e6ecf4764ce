// Implements Connection by a UCX endpoint. Each message is sent as one UCX Active Message. The link
// header is the Active Message's header. The payload is not copied: UCX gets a list of the
// payload's pieces, at most two.
//
// Threads: all on the loop.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/ucx/async_thread.h"
#include "transport/p2p/ucx/handles.h"
#include "transport/p2p/ucx/knock.h"

namespace longhaul::transport::ucx {

// UCX's id of the kind of Active Message that carries all messages.
inline constexpr unsigned kMessageId = 1;

class UcxConnection;

// The connections of a backend. UCX delivers the messages of all endpoints to one worker; this
// table finds the connection of each message.
struct ConnectionTable {
  std::unique_ptr<AsyncThread> async_thread;
  internal::ConnectionSet<UcxConnection> connections;
  std::unordered_map<ucp_ep_h, UcxConnection*> by_endpoint;
  // True while UCX's functions run; they may call this code back. If a send inside such a callback
  // found a dead socket, it would mark the endpoint closed while UCX still holds an event for it,
  // and UCX would abort. So sends wait in `to_flush` until UCX has returned.
  bool inside_ucx = false;
  std::vector<std::shared_ptr<UcxConnection>> to_flush;
  bool shutting_down = false;
};

class UcxConnection : public internal::Connection,
                      public std::enable_shared_from_this<UcxConnection> {
 public:
  // `own_text` and `peer_text` name the two ends in Describe. The connection adds itself to
  // `table`, and removes itself when it has closed.
  static std::shared_ptr<UcxConnection> Create(std::shared_ptr<EventLoop> loop,
                                               std::shared_ptr<Worker> worker,
                                               const std::shared_ptr<ConnectionTable>& table,
                                               const std::string& own_text,
                                               const std::string& peer_text);

  // Call exactly one of Connect, Accept and FailToStart, once. Sends wait until then. Errors reach
  // OnClosed. Accept takes ownership of `request`.
  void Connect(const SocketAddress& peer);
  void Accept(ucp_conn_request_h request);
  // Ends the connection because its address could not be found.
  void FailToStart(const Status& reason) { CloseWith(reason); }

  void SetEvents(std::shared_ptr<internal::ConnectionEvents> events) override {
    events_ = std::move(events);
  }
  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override;
  void Close() override { CloseWith(absl::CancelledError("closed on this side")); }
  std::string Describe() const override { return description_; }

  // Sends the messages that waited for UCX to return.
  void Flush();
  // Called by the worker's message callback.
  void Deliver(std::span<const std::byte> header, std::span<const std::byte> payload);
  // Like Close, but OnClosed gets `reason`. Only the first reason counts.
  void CloseWith(const Status& reason);

 private:
  struct Operation;
  struct Waiting {
    std::span<const std::byte> header;
    FrameView payload;
    SendDone done;
  };

  UcxConnection(std::shared_ptr<EventLoop> loop, std::shared_ptr<Worker> worker,
                std::shared_ptr<ConnectionTable> table, std::string description)
      : loop_(std::move(loop)),
        worker_(std::move(worker)),
        table_(std::move(table)),
        description_(std::move(description)) {}
  std::function<void(Status)> ErrorHandler();
  void Begin(StatusOr<std::unique_ptr<Endpoint>> endpoint);
  void Submit(Waiting waiting);
  static void OnSent(void* request, ucs_status_t status, void* user_data);
  void DropOnLoop();
  // Drops the endpoint once its handshake has ended, because UCX may abort if it is dropped earlier
  // (async_thread.h). The peer's first message or an error shows that the handshake has ended.
  // Without either, drops it after 10 s, or after 1 s when the backend shuts down.
  void Drop();
  void DropEndpoint();
  void FinishIfDone();
  void Finish(const Status& reason);

  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<ConnectionTable> table_;
  const std::string description_;
  std::shared_ptr<internal::ConnectionEvents> events_;
  std::shared_ptr<Knock> knock_;  // null: this side did not dial
  std::unique_ptr<Endpoint> endpoint_;
  std::deque<Waiting> waiting_;  // sends that wait for the endpoint, or for UCX to return
  SocketAddress dialled_;        // its size is 0: this side did not dial
  bool heard_ = false;           // a message has arrived
  bool failed_ = false;          // UCX reported an error
  std::optional<EventLoop::TimerId> drop_timer_;
  bool dropping_ = false;
  size_t under_way_ = 0;  // sends whose `done` has not run
  bool closing_ = false;
  bool endpoint_closed_ = false;
  bool finished_ = false;
  Status reason_;
};

}  // namespace longhaul::transport::ucx
