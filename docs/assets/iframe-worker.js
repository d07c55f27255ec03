// A worker for pages that were opened from a file: browsers start none there. The script of the
// site's search runs in a hidden frame instead, under the name that the theme looks for.
"use strict";

class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    const inner = frame.contentWindow;
    // A document of its own: Firefox replaces the one that a frame begins with.
    inner.document.open();
    inner.document.write("<!doctype html><body></body>");
    inner.document.close();
    // What the script calls in the frame, as it would in a worker.
    inner.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    };
    inner.importScripts = (...sources) =>
      sources.reduce((done, source) => done.then(() => this.load(source)), Promise.resolve());
    this.inner = inner;
    this.ready = this.load(url);
  }

  load(source) {
    return new Promise((resolve, reject) => {
      const script = this.inner.document.createElement("script");
      script.src = source;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${source} cannot be loaded`));
      this.inner.document.body.appendChild(script);
    });
  }

  postMessage(data) {
    this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
