"""A stage on a work pool: its flow run, from the stage task that wants it to its end.

The flow run, the child, runs the same stage under the same key in another process; the manifest in
the store is the result and the only truth. The child holds the lease, so the parent takes none.

`child` starts and follows it; `parents` are the flow runs that want it; `pods` tells why a pod is
in trouble; `api` asks Prefect's API patiently; `check` refuses a placement that the server does
not have; `names` is how all of these find one another.
"""
