{{/*
The name of everything. A StatefulSet's name, a dash and a digest of 10 characters are a label of its pods, of at most
63 characters, and the proxy's has a suffix.
*/}}
{{- define "ratchet.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $both .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- end }}

{{/* Labels by which pods are selected: (dict "root" $ "component" "worker"). */}}
{{- define "ratchet.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* All labels, with the same arguments. */}}
{{- define "ratchet.labels" -}}
{{ include "ratchet.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: ratchet
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ratchet.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "ratchet.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- define "ratchet.image" -}}
{{- with .Values.image -}}
{{- if not .repository -}}
{{- fail "image.repository is missing: name the place where you have pushed the image that `make docker` builds" -}}
{{- end -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* "true" if there are topologies to run. */}}
{{- define "ratchet.hasWorker" -}}
{{- if or .Values.topologies .Values.existingConfigMaps -}}true{{- end -}}
{{- end }}

{{/* The kind of the proxy's store. */}}
{{- define "ratchet.proxy.store" -}}
{{- $kinds := keys (default dict .Values.proxy.config.store) -}}
{{- if gt (len $kinds) 1 -}}
{{- fail (printf "proxy.config.store: a proxy has one store, not %s" (join " and " (sortAlpha $kinds))) -}}
{{- end -}}
{{- default "embedded" (first $kinds) -}}
{{- end }}

{{/* How many proxies. */}}
{{- define "ratchet.proxy.replicas" -}}
{{- $embedded := eq (include "ratchet.proxy.store" .) "embedded" -}}
{{- $replicas := .Values.proxy.replicaCount -}}
{{- if kindIs "invalid" $replicas -}}
{{- $replicas = ternary 1 2 $embedded -}}
{{- end -}}
{{- if and $embedded (gt (int $replicas) 1) -}}
{{- fail (printf "proxy.replicaCount: an embedded store is of one proxy, not of %d: set proxy.config.store to postgres or redis, which several share" (int $replicas)) -}}
{{- end -}}
{{- int $replicas -}}
{{- end }}

{{/* A duration as ratchet reads it, in whole seconds, rounded up. */}}
{{- define "ratchet.seconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "min" 60000 "h" 3600000 "d" 86400000 "w" 604800000 -}}
{{- $ms := 0 -}}
{{- range regexFindAll "[0-9]+\\s*[a-z]+" . -1 -}}
{{- $ms = add $ms (mul (regexFind "[0-9]+" .) (get $units (regexFind "[a-z]+" .) | int)) -}}
{{- end -}}
{{- div (add $ms 999) 1000 -}}
{{- end }}

{{/*
A pod's spec, without its volumes: (dict "root" $ "values" ... "args" (list ...) "mounts" (list ...) "ports" ... "env" ...
"envFrom" ... "lifecycle" ...).
*/}}
{{- define "ratchet.pod" -}}
serviceAccountName: {{ include "ratchet.serviceAccount" .root }}
# Nothing here asks the cluster anything.
automountServiceAccountToken: false
# A variable such as RATCHET_HTTP would be a setting.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- with .values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: ratchet
    image: {{ include "ratchet.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    {{- with .env }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .envFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      {{- toYaml .ports | nindent 6 }}
    {{- with .lifecycle }}
    lifecycle:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    livenessProbe:
      {{- toYaml .values.livenessProbe | nindent 6 }}
    readinessProbe:
      {{- toYaml .values.readinessProbe | nindent 6 }}
    {{- with .values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- toYaml .root.Values.securityContext | nindent 6 }}
    volumeMounts:
      {{- toYaml (concat .mounts .values.extraVolumeMounts) | nindent 6 }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The claim of a StatefulSet's volume `data`, from a `persistence`. */}}
{{- define "ratchet.claim" -}}
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: data
    spec:
      accessModes:
        {{- toYaml .accessModes | nindent 8 }}
      {{- with .storageClassName }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests:
          storage: {{ .size }}
{{- end }}

{{/*
A text as it is, unless an address in it holds a password in plain text, which then would stand in a ConfigMap:
(dict "text" ... "name" "proxy.config").
*/}}
{{- define "ratchet.public" -}}
{{- if or (regexMatch "://[^\\s/:@]*:[^\\s/@$][^\\s/@]*@" .text) (regexMatch "password *= *[^\\s$]" .text) -}}
{{- fail (printf "%s holds a password in plain text: write ${env:NAME} in its place, and let a Secret give the variable" .name) -}}
{{- end -}}
{{ .text }}
{{- end }}
