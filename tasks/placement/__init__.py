"""The Prefect task of a stage, which computes it in this process or has a work pool do so.

`task` is that task. On a work pool, the stage is a flow run of its own, the child of the task that
wants it. The child runs the same stage under the same key in another process. The manifest in the
store is the result and the only truth. The child holds the lease, so the parent takes no lease.

`child` starts and follows the child. `parents` are the flow runs that want it. `pods` finds why a
pod is in trouble. `api` repeats requests that Prefect does not answer, and refuses a placement that
the server does not have. `names` has the names and tags of all of them.
"""
