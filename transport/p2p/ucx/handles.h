// Each class owns one UCX handle, and keeps alive the other handles that its handle needs. All
// errors are kUnavailable. Callbacks must not be null. Progress: ucp_worker_progress.
//
// Threads: all on the loop.
#pragma once

#include <ucp/api/ucp.h>

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/ucx/socket_address.h"

namespace longhaul::transport::ucx {

// Returns kUnavailable "<what>: <UCX's text>", whatever `status` is.
Status FromUcs(const std::string& what, ucs_status_t status);

class Context {
 public:
  // Makes a context that uses only TCP over `device`, a network interface such as "eth0", by the
  // rules of docs/gotchas/transport.md.
  static StatusOr<std::shared_ptr<Context>> Create(const std::string& device);
  explicit Context(ucp_context_h context) : context_(context) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ucp_cleanup(context_); }
  ucp_context_h get() const { return context_; }

 private:
  const ucp_context_h context_;
};

class Worker {
 public:
  static StatusOr<std::shared_ptr<Worker>> Create(std::shared_ptr<Context> context);
  Worker(std::shared_ptr<Context> context, ucp_worker_h worker)
      : context_(std::move(context)), worker_(worker) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { ucp_worker_destroy(worker_); }
  ucp_worker_h get() const { return worker_; }
  // Returns a descriptor that is readable when the worker has events. The worker owns it.
  StatusOr<int> EventFd() const;
  // Runs `callback` with `arg` for each Active Message with this id, inside progress. `arg` must
  // outlive the worker.
  Status SetMessageHandler(unsigned id, ucp_am_recv_callback_t callback, void* arg);

 private:
  const std::shared_ptr<Context> context_;
  const ucp_worker_h worker_;
};

class Listener {
 public:
  // `on_request` gets ownership of each connection request: pass it to Endpoint::Accept or Reject.
  // `on_request` runs inside the worker's progress.
  static StatusOr<std::unique_ptr<Listener>> Create(
      std::shared_ptr<Worker> worker, const SocketAddress& address,
      std::function<void(ucp_conn_request_h)> on_request);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();
  // Returns the address with its real port.
  StatusOr<SocketAddress> Address() const;
  void Reject(ucp_conn_request_h request) { ucp_listener_reject(listener_, request); }

 private:
  explicit Listener(std::shared_ptr<Worker> worker) : worker_(std::move(worker)) {}
  static void OnRequest(ucp_conn_request_h request, void* arg);
  const std::shared_ptr<Worker> worker_;
  std::function<void(ucp_conn_request_h)> on_request_;
  ucp_listener_h listener_ = nullptr;
};

class Endpoint {
 public:
  // `on_error` runs inside the worker's progress when the peer is gone, never after Close or the
  // destructor. Accept takes ownership of `request`.
  static StatusOr<std::unique_ptr<Endpoint>> Connect(std::shared_ptr<Worker> worker,
                                                     const SocketAddress& peer,
                                                     std::function<void(Status)> on_error);
  static StatusOr<std::unique_ptr<Endpoint>> Accept(std::shared_ptr<Worker> worker,
                                                    ucp_conn_request_h request,
                                                    std::function<void(Status)> on_error);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  // Drops the connection if Close was not called. UCX then finishes the drop later, in the worker's
  // progress or destruction.
  ~Endpoint();
  ucp_ep_h get() const { return endpoint_; }
  // Drops the connection; pending sends are cancelled. `done` runs once, inside this call or later
  // inside the worker's progress. Call it once.
  void Close(std::function<void()> done);

 private:
  explicit Endpoint(std::shared_ptr<Worker> worker) : worker_(std::move(worker)) {}
  static StatusOr<std::unique_ptr<Endpoint>> Create(std::shared_ptr<Worker> worker,
                                                    ucp_ep_params_t params,
                                                    std::function<void(Status)> on_error);
  static void OnError(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  const std::shared_ptr<Worker> worker_;
  // Allocated on the heap: UCX keeps its address for as long as the endpoint exists.
  std::shared_ptr<std::function<void(Status)>> on_error_;
  ucp_ep_h endpoint_ = nullptr;
};

}  // namespace longhaul::transport::ucx
