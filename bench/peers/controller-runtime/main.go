// The peer in controller-runtime: for each Greeting one ConfigMap and one status, both by server-side apply.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const manager = "peer"

var groupVersion = schema.GroupVersion{Group: "example.org", Version: "v1"}

// Greeting is the kind that is reconciled.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              map[string]string `json:"spec,omitempty"`
	Status            GreetingStatus    `json:"status,omitempty"`
}

type GreetingStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Greeting `json:"items"`
}

func (in *Greeting) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = make(map[string]string, len(in.Spec))
	for key, value := range in.Spec {
		out.Spec[key] = value
	}
	return &out
}

func (in *GreetingList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Greeting, len(in.Items))
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopyObject().(*Greeting)
	}
	return &out
}

type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var greeting Greeting
	if err := r.Get(ctx, request.NamespacedName, &greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Apply(ctx, configMapFor(&greeting), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	if greeting.Status.ObservedGeneration == greeting.Generation {
		return ctrl.Result{}, nil
	}
	status := client.ApplyConfigurationFromUnstructured(statusOf(&greeting))
	return ctrl.Result{}, r.Status().Apply(ctx, status, client.FieldOwner(manager), client.ForceOwnership)
}

func configMapFor(greeting *Greeting) *corev1ac.ConfigMapApplyConfiguration {
	owner := metav1ac.OwnerReference().
		WithAPIVersion(groupVersion.String()).WithKind("Greeting").
		WithName(greeting.Name).WithUID(greeting.UID).WithController(true)
	return corev1ac.ConfigMap(greeting.Name, greeting.Namespace).WithOwnerReferences(owner).WithData(greeting.Spec)
}

func statusOf(greeting *Greeting) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": groupVersion.String(),
		"kind":       "Greeting",
		"metadata":   map[string]any{"name": greeting.Name, "namespace": greeting.Namespace},
		"status":     map[string]any{"observedGeneration": greeting.Generation},
	}}
}

func run(namespace string, workers int) error {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:  scheme,
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Greeting{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	namespace := flag.String("namespace", "default", "the namespace that is watched")
	workers := flag.Int("workers", 10, "reconciles at once")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if err := run(*namespace, *workers); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
